"""What a receiver's interface turns a group into, and what its answers mean. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from actions.notify.groups import Due, Group

FailureReason = Literal["auth", "rate", "client", "server", "timeout", "connect", "tls"]
REASONS: tuple[FailureReason, ...] = (
    "auth", "rate", "client", "server", "timeout", "connect", "tls",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One POST. Its URL and headers may hold secrets: neither is ever logged."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Call({len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `retry_after_s` where the server asked for it.

    whole  its body did not break off, and was not too long
    """

    status: int
    body: bytes = b""
    retry_after_s: float | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """None came; `may_be_sent`: a connection by TLS that broke may have done so after the call."""

    reason: Literal["timeout", "connect", "tls"]
    may_be_sent: bool = False


class Http(Protocol):
    """The world, as far as notifying needs it."""

    def post(self, call: Call) -> Answer | NoAnswer:
        """Send it once: no redirects, nothing tried again."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """A group and what it is to be told."""

    due: Due
    group: Group


@dataclass(frozen=True, slots=True)
class Change:
    """Something was done: a node was isolated or given back."""

    id: str
    receiver: str
    summary: str
    source: str
    at: float
    details: dict[str, str]
    incident: str


class Interface(Protocol):
    """One kind of receiver."""

    batch_max: int

    def call(self, items: Sequence[Item], now_s: float) -> Call:
        """All of them at once; at most `batch_max`."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """It was not taken. `final`: the same call would never be."""

    reason: FailureReason
    final: bool
    retry_after_s: float | None = None
    status: int | None = None


def judged(answer: Answer | NoAnswer) -> Failure | None:
    """None where it was taken."""
    if isinstance(answer, NoAnswer):
        return Failure(answer.reason, final=False)
    status = answer.status
    if 200 <= status < 300:
        return None
    if status in (401, 403, 404, 407):  # a setting is wrong, here or there: it may be put right
        return Failure("auth" if status != 404 else "client", False, None, status)
    if status == 429:
        return Failure("rate", False, answer.retry_after_s, status)
    if status in (408, 425) or status >= 500:
        return Failure("server", False, answer.retry_after_s, status)
    return Failure("client", 400 <= status < 500, None, status)
