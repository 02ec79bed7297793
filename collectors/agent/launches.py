"""What `nodewarden run` tells of its command, as events of processes that died.

Anybody on the node may send. A clean end and a start are no event: nothing happened to the job.
"""

from __future__ import annotations

import signal
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from collectors.agent.last_words import failure_of
from collectors.training.model import Failure
from telemetry.codec import AT_MAX_S, name_fault, rejected
from telemetry.records import Event, Rejected, Severity

MARK = b'{"launch":'  # how each such datagram begins
BYTES_MAX = 32_768
LINES_MAX = 64
TEXT_MAX = 4_096
AHEAD_S, BEHIND_S = 5.0, 60.0
PLACE = "steps socket"
SOURCE = "launch"
_UNHURT = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"})

Name = Annotated[str, Meta(max_length=253)]
Word = Annotated[str, Meta(max_length=32, pattern=r"^[A-Z0-9+-]*$")]


class Launch(msgspec.Struct, frozen=True):
    """One message of the wrapper.

    exitcode, signal   how it ended, one of them
    passed             a signal that the wrapper was sent and passed on
    stderr             the last lines
    """

    launch: Literal["start", "end"]
    at: Annotated[float, Meta(ge=0.0, lt=AT_MAX_S)]
    job: Name = ""
    rank: Annotated[int, Meta(ge=0, lt=10_000_000)] | None = None
    command: Name = ""
    pid: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    exitcode: Annotated[int, Meta(ge=0, le=255)] | None = None
    signal: Word | None = None
    passed: Word | None = None
    stderr: Annotated[
        list[Annotated[str, Meta(max_length=TEXT_MAX)]], Meta(max_length=LINES_MAX)
    ] = []


_DECODER = msgspec.json.Decoder(Launch)


def read_launch(data: bytes, now_s: float) -> Launch | Rejected:
    """One datagram, or why it is none. A time far from ours is replaced: the node has one clock."""
    if len(data) > BYTES_MAX:
        return rejected(f"more than {BYTES_MAX} bytes", data, PLACE)
    try:
        said = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return rejected(f"no launch: {error}", data, PLACE)
    fault = name_fault("job", said.job) or name_fault("command", said.command)
    if fault is None and said.launch == "end" and (said.exitcode is None) == (said.signal is None):
        fault = "an end needs either exitcode or signal"
    if fault is not None:
        return rejected(fault, data, PLACE)
    sane = now_s - BEHIND_S <= said.at <= now_s + AHEAD_S
    return said if sane else msgspec.structs.replace(said, at=now_s)


def event_of(said: Launch, node: str, boot_id: str) -> Event | None:
    """The event of a process that failed; None where none did."""
    if said.launch == "start" or said.exitcode == 0:
        return None
    failure = failure_of(said.stderr, _code(said))
    severity: Severity = "critical"
    if failure.role != "cause" or (said.passed is not None and said.passed in _UNHURT):
        severity = "warning"
    echo = failure.role != "cause" and failure.class_ == "user_code"
    return Event(
        at=said.at, node=node, source=SOURCE, started_at=0.0, seq=0, boot_id=boot_id,
        type="process", severity=severity, class_="echo" if echo else failure.class_,
        entity=f"rank:{said.rank}" if said.rank is not None else "",
        text=_text(said, failure), pid=said.pid, process=said.command or None, job=said.job,
        details=_details(said, failure),
    )  # fmt: skip


def _code(said: Launch) -> int:
    if said.exitcode is not None:
        return said.exitcode
    try:
        return -signal.Signals[said.signal or ""]
    except KeyError:  # one that has no name here
        return 255


def _text(said: Launch, failure: Failure) -> str:
    """The line that tells most, with how it ended."""
    line = failure.text.strip() or (said.stderr[-1].strip() if said.stderr else "")
    ended = f"exit code {said.exitcode}" if said.signal is None else said.signal
    return f"{ended}: {line}"[:TEXT_MAX] if line else ended


def _details(said: Launch, failure: Failure) -> dict[str, str | int]:
    details: dict[str, str | int] = {"event": "exit"}
    if said.exitcode is not None:
        details["exitcode"] = said.exitcode
    for name, word in (
        ("signal", said.signal), ("passed", said.passed), ("detail", failure.detail),
        ("peer", failure.more.get("peer")), ("stderr", "\n".join(said.stderr)[-TEXT_MAX:]),
    ):  # fmt: skip
        if isinstance(word, str) and word:
            details[name] = word
    return details
