"""What leaves the node: a message for one partition, and the way to the log that takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One record as it goes to the log; a value of None is a tombstone."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory and in a request."""
        return 128 + len(self.value or b"") + len(self.key or b"")


class Settled(msgspec.Struct, frozen=True):
    """What the log did with one message; `fault` says why it will never take it."""

    message: Message
    fault: str | None = None


class Link(Protocol):
    """Hands messages to the log in their order, and never waits for it.

    replaced  producers that failed and were replaced
    """

    replaced: int

    def offer(self, message: Message) -> bool:
        """Take the message; False where there is no room, or nobody to hand it to, just now."""
        ...

    def settled(self) -> Sequence[Settled]:
        """What is settled since the last call, in the order of the offers."""
        ...

    def withdraw(self) -> None:
        """Forget what is not settled: whether the log has it stays unknown."""
        ...

    def close(self) -> None:
        """Withdraw and leave."""
        ...
