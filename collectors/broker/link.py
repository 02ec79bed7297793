"""The Link of the node agent: never waits for the broker, replaces its producer when it fails."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from collectors.broker.producer import Pipe
from collectors.link import Message, Settled
from telemetry.broker_security import client_options
from telemetry.errors import PublishError, SettingsError
from telemetry.ports import Clock
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY

MESSAGES_MAX = 1_000
BYTES_MAX = 4_000_000
CONNECT_S = 3.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.25, 5.0


class KafkaLink:
    """At most `MESSAGES_MAX` messages under way; connecting happens in a thread of its own.

    replaced   producers that failed and were replaced
    last_fault why the last one failed, or could not be made
    """

    def __init__(
        self,
        settings: KafkaSettings,
        clock: Clock,
        topics: Sequence[str] = (TELEMETRY,),
        client_id: str = "nodewarden-agent",
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`say` is told each fault. Raises SettingsError for a file of `kafka.security`."""
        client_options(settings)
        self._say = say
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._topics = tuple(topics)
        self._pipe: Pipe | None = None
        self._done: list[Settled] = []  # before their pipe was taken apart
        self._again: deque[Message] = deque()  # to be sent again, in order, before anything else
        self._opened: SimpleQueue[Pipe | PublishError | SettingsError] = SimpleQueue()
        self._opening = False
        self._closed = False
        self._pause_s = PAUSE_MIN_S
        self._not_before_s = 0.0
        self.replaced = 0
        self.last_fault: str | None = None

    def offer(self, message: Message) -> bool:
        """Take the message; False without a broker, or with too much under way."""
        pipe = self._sound()
        if pipe is None or self._again:
            return False
        if len(pipe) >= MESSAGES_MAX or pipe.unsettled_bytes >= BYTES_MAX:
            return False
        pipe.send(message)
        return True

    def settled(self) -> list[Settled]:
        """What is settled since the last call, in the order of the offers."""
        pipe = self._sound()
        done, self._done = self._done, []
        if pipe is not None:
            done += pipe.settled()
        if done:
            self._pause_s = PAUSE_MIN_S
        return done

    def withdraw(self) -> None:
        """Forget what is not settled, and connect anew."""
        self._again.clear()
        self._done.clear()
        if self._pipe is not None:
            self._pipe.end()
            self._pipe = None
            self._wait_longer()

    def close(self) -> None:
        """Leave at once."""
        self._closed = True
        self.withdraw()

    def _sound(self) -> Pipe | None:
        """A producer that works, with what has to be sent again already in it; else None."""
        if self._pipe is not None and self._pipe.broken is not None:
            self._take_apart(self._pipe)
        if self._pipe is None:
            self._pipe = self._connected()
        if self._pipe is not None:
            while self._again and self._pipe.broken is None:
                self._pipe.send(self._again.popleft())
        return self._pipe

    def _take_apart(self, pipe: Pipe) -> None:
        self.replaced += 1
        self._note(pipe.broken or "")
        self._done += pipe.settled()
        self._again.extendleft(reversed(pipe.end()))
        self._pipe = None
        self._wait_longer()

    def _connected(self) -> Pipe | None:
        """What the connecting thread made, None until it has; starts one when it is time."""
        if not self._opening:
            if not self._closed and self._clock.monotonic_s() >= self._not_before_s:
                self._opening = True
                threading.Thread(target=self._open, name="kafka-connect", daemon=True).start()
            return None
        try:
            opened = self._opened.get_nowait()
        except Empty:
            return None
        self._opening = False
        if isinstance(opened, Pipe):
            return opened
        self._note(str(opened))
        self._wait_longer()
        return None

    def _note(self, fault: str) -> None:
        self.last_fault = fault
        if self._say is not None:
            self._say(fault)

    def _wait_longer(self) -> None:
        self._not_before_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(self._pause_s * 2.0, PAUSE_MAX_S)

    def _open(self) -> None:
        try:
            pipe = Pipe(self._settings, self._client_id, connect_s=CONNECT_S, topics=self._topics)
        except (PublishError, SettingsError) as error:
            self._opened.put(error)
            return
        if self._closed:
            pipe.end()
        else:
            self._opened.put(pipe)
