"""The central collector's loop: sources in, one way out. One thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from collectors.agent.counts import Counts
from collectors.agent.notes import Notes
from collectors.agent.sink import Sink
from collectors.central.source import Said, Source
from telemetry.ports import Clock
from telemetry.records import Record, Rejected

TURN_S = 0.05
PUT_MAX = 500  # records between two looks at the broker: more would all go by way of the disk
CLOSE_S = 3.0
REJECTED_A_MINUTE = 60


class Central:
    """Until told to stop, or until every source is idle."""

    def __init__(
        self, sources: Sequence[Source], sink: Sink, counts: Counts, notes: Notes, clock: Clock
    ) -> None:
        self._sources, self._sink, self._counts = sources, sink, counts
        self._notes, self._clock = notes, clock
        self._ticket = 0
        self._waiting: deque[tuple[Source, deque[Record]]] = deque()
        self._rejected_until_s, self._rejected_room = 0.0, REJECTED_A_MINUTE
        for source in sources:
            for stream, seq in source.streams().items():
                sink.resume(stream, seq)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Turn until `is_over`. Raises SettingsError where a source finds that it cannot work."""
        try:
            while not is_over():
                if not self.turn():
                    self._clock.sleep(TURN_S)
        finally:
            self.close()

    def turn(self) -> bool:
        """Take what there is, put some of it, settle; whether there is more to do at once."""
        if not self._waiting:
            for source in self._sources:
                said = source.poll()
                if said is not None:
                    self._take(source, said)
        busy = bool(self._waiting)
        self._put()
        self._sink.pump()
        for source in self._sources:
            source.settle(self._sink.safe)
        return busy

    def close(self) -> None:
        """Put what waits, hand over what can be handed over, and end."""
        for source in self._sources:
            said = source.finish()
            if said is not None:
                self._take(source, said)
        while self._waiting:
            self._put()
            self._sink.pump()
        self._sink.close(CLOSE_S)
        for source in self._sources:
            source.settle(self._sink.safe)
            source.close()

    def _take(self, source: Source, said: Said) -> None:
        for rejected in said.rejected:
            self._reject(rejected)
        self._notes.say_all(said.notes)
        self._waiting.append((source, deque(said.records)))

    def _put(self) -> None:
        room = PUT_MAX
        while self._waiting and room:
            source, records = self._waiting[0]
            while records and room:
                record = records.popleft()
                self._ticket = self._sink.put(record)
                self._counts.add("records", 1, type(record).__name__.lower())
                room -= 1
            if not records:
                source.reached(self._ticket)
                self._waiting.popleft()

    def _reject(self, rejected: Rejected) -> None:
        """A source that is all junk must not fill the topic of the rejected."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._rejected_until_s:
            self._rejected_until_s, self._rejected_room = now_s + 60.0, REJECTED_A_MINUTE
        if self._rejected_room == 0:
            self._counts.add("rejected_left_out")
            return
        self._rejected_room -= 1
        self._sink.reject(rejected)
