"""A Link in memory whose broker can be taken away."""

from __future__ import annotations

from collectors.link import Message, Settled
from telemetry.errors import PublishError
from telemetry.testing import MemoryPublisher


class FakeLink:
    """Hands messages to a MemoryPublisher.

    away    takes messages while it has room, and nothing reaches the log
    closed  takes nothing
    deaf    what it takes reaches the log, and no acknowledgement comes back
    """

    def __init__(self, room: int = 100) -> None:
        self.log = MemoryPublisher()
        self.room = room
        self.away = False
        self.closed = False
        self.deaf = False
        self.replaced = 0
        self.faults: dict[bytes, str] = {}
        self._under_way: list[Message] = []
        self._appended = 0

    def offer(self, message: Message) -> bool:
        """Take it while there is room."""
        if self.closed or len(self._under_way) >= self.room:
            return False
        self._under_way.append(message)
        self._append()
        return True

    def settled(self) -> list[Settled]:
        """What is settled since the last call."""
        self._append()
        if self.deaf:
            return []
        done = self._under_way[: self._appended]
        del self._under_way[: self._appended]
        self._appended = 0
        return [Settled(message, self.faults.get(message.value or b"")) for message in done]

    def withdraw(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()
        self._appended = 0

    def close(self) -> None:
        """Take nothing any more."""
        self.withdraw()
        self.closed = True

    def _append(self) -> None:
        while not self.away and self._appended < len(self._under_way):
            message = self._under_way[self._appended]
            self._appended += 1
            if (message.value or b"") in self.faults:
                continue
            try:
                self.log.publish(
                    message.topic, message.value, key=message.key, partition=message.partition,
                    headers=message.headers,
                )  # fmt: skip
            except PublishError:
                self._appended -= 1
                return
