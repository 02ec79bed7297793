"""Who speaks: which records of a stream are new, and how wrong the clock of its node is.

Found by the stream: one look-up a record, whatever is asked of its speaker.
"""

from __future__ import annotations

from streams.inventory import NODES_MAX
from streams.sequence import SequenceWindow
from streams.skew import Skew
from telemetry.records import Header
from telemetry.settings import TickSettings

STREAMS_MAX = 200_000
StreamKey = tuple[str, str, float]
"""(node, source, started_at)"""


class Stream(SequenceWindow):
    """The numbers of one stream, and the clock of its node, None until somebody asked for it."""

    __slots__ = ("clock",)

    def __init__(self, highest: int = -1, bits: int = 0, lost: int = 0) -> None:
        super().__init__(highest, bits, lost)
        self.clock: Skew | None = None


class Speakers:
    """All streams, the oldest first, and the clock of each node. Both are bounded."""

    def __init__(self, rules: TickSettings) -> None:
        self._rules = rules
        self.streams: dict[StreamKey, Stream] = {}
        self.clocks: dict[str, Skew] = {}

    def stream_of(self, record: Header) -> Stream:
        """The stream that the record belongs to."""
        key = (record.node, record.source, record.started_at)
        return self.streams.get(key) or self.stream(key)

    def stream(self, key: StreamKey) -> Stream:
        """The stream of this name; beyond the limit the oldest one is forgotten."""
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= STREAMS_MAX:
                del self.streams[next(iter(self.streams))]
            stream = self.streams[key] = Stream()
        return stream

    def clock_of(self, node: str, stream: Stream) -> Skew:
        """The clock of the node that speaks in the stream."""
        clock = self.clocks.get(node)
        if clock is None:
            clock = Skew(self._rules)
            if len(self.clocks) >= NODES_MAX:
                return clock  # further clocks are taken at their word
            self.clocks[node] = clock
        stream.clock = clock
        return clock

    def adopt(self, rules: TickSettings) -> None:
        """Other rules for all clocks from here on."""
        self._rules = rules
        for clock in self.clocks.values():
            clock.adopt(rules)

    def forget(self, nodes: frozenset[str]) -> None:
        """Nobody ever heard these."""
        for key in [key for key in self.streams if key[0] in nodes]:
            del self.streams[key]
        for node in nodes:
            self.clocks.pop(node, None)
