"""What a file that a watchdog or a person left says, as one event: a pointer and a summary. Pure.

The file itself stays where it is. What it holds in full waits for record kinds of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from collectors.agent.log_names import LogNames
from collectors.collectives.reader import read_collectives
from collectors.files import looks_like_text
from collectors.pyspy import read_stacks
from telemetry.codec import rejected
from telemetry.records import Event, Rejected

SOURCE = "dumps"
REJECTED_MAX = 20  # of one file
TEXT_MAX = 4_096
TOP_MAX = 5
FRAMES_SHOWN = 8
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True, slots=True)
class Found:
    """One file, or the part of it that is new.

    whole   False where it is too long to be read: then `data` is its beginning
    """

    path: str
    job: str
    rank: int | None
    at_s: float
    data: bytes
    whole: bool


@dataclass(slots=True)
class Said:
    """What one file gave; `records` counts what no event tells of."""

    event: Event | None = None
    rejected: list[Rejected] = field(default_factory=list)
    records: int = 0
    broken: int = 0

    def reject(self, reason: str, text: str, found: Found) -> None:
        """Keep the first few, count all."""
        self.broken += 1
        if len(self.rejected) < REJECTED_MAX:
            self.rejected.append(rejected(reason, text.encode("utf-8", "replace"), found.path))


def of_collectives(found: Found) -> Said:
    """A flight recorder's dump is an event; the Inspector's times are counted only."""
    said = Said()
    if found.data.startswith(PICKLES):
        words = "flight recorder dump, a pickle: it is code and was not read"
        said.event = _event(found, "nccl", words, {"detail": "flight_recorder"})
        return said
    if not found.whole and not is_inspector(found.data):
        words = "flight recorder dump, too long to be summed up"
        said.event = _event(found, "nccl", words, {"detail": "flight_recorder"})
        return said
    if not looks_like_text(found.data[:4_096]):
        said.reject(
            "neither text nor a pickle", found.data[:4_096].decode("utf-8", "replace"), found
        )
        return said
    dump = _Recorder()
    for one in read_collectives(found.path, [found.data]):
        if one["type"] == "rejected":
            said.reject(one["reason"], one["text"], found)
        elif one["type"] in ("group", "collective"):
            dump.take(one)
        else:
            said.records += 1
    if dump.entries or dump.groups:
        said.event = _event(found, "nccl", dump.words(), dump.details(), dump.rank)
    elif not said.records and not said.broken:
        said.reject("no flight recorder's dump and no Inspector's record",
                    found.data[:4_096].decode("utf-8", "replace"), found)  # fmt: skip
    return said


def is_inspector(data: bytes) -> bool:
    """Whether a file is the Inspector's, which grows by lines."""
    return b'"coll_perf"' in data[:65_536]


def of_stacks(found: Found) -> Said:
    """A dump of py-spy or faulthandler: how many threads, and where most main threads stand."""
    said = Said()
    if not looks_like_text(found.data[:4_096]):
        said.reject("no text", found.data[:4_096].decode("utf-8", "replace"), found)
        return said
    stacks = _Stacks()
    for one in read_stacks(found.path, [found.data]):
        if one["type"] == "rejected":
            said.reject(one["reason"], one["text"], found)
        else:
            stacks.take(one)
    if stacks.threads:
        details: dict[str, str | int] = {"detail": "stack_dump", "threads": stacks.threads}
        said.event = _event(found, "stack_dump", stacks.words(), details)
    elif not said.broken:
        said.reject("no stack of py-spy or faulthandler",
                    found.data[:4_096].decode("utf-8", "replace"), found)  # fmt: skip
    return said


def named(names: LogNames, path: str, has_job: bool) -> tuple[str, int | None]:
    """Job and rank by the path; a directory's name is no job's unless the template says so."""
    read = names.read(path)
    job, rank = read if read is not None else ("", None)
    return (job if has_job else ""), rank


def _event(
    found: Found, class_: str, words: str, details: dict[str, str | int], rank: int | None = None
) -> Event:
    """The node and the boot are the agent's to name."""
    rank = found.rank if found.rank is not None else rank
    return Event(
        at=found.at_s, node="", source=SOURCE, started_at=0.0, seq=0, type="process",
        severity="warning", class_=class_, entity=f"rank:{rank}" if rank is not None else "",
        text=f"{found.path}: {words}"[:TEXT_MAX], job=found.job,
        details={"file": found.path[:TEXT_MAX], **details},
    )  # fmt: skip


class _Recorder:
    """The first collective that did not end, by its place in each rank's record."""

    def __init__(self) -> None:
        self.entries = self.groups = self.pending = 0
        self._ranks: set[int] = set()
        self._first: dict[str, Any] | None = None

    def take(self, one: dict[str, Any]) -> None:
        """One object of `read_dump`."""
        if isinstance(one["rank"], int):
            self._ranks.add(one["rank"])
        if one["type"] == "group":
            self.groups += 1
            return
        self.entries += 1
        if one["retired"] or one["state"] == "completed":
            return
        self.pending += 1
        if self._first is None or _place(one) < _place(self._first):
            self._first = one

    @property
    def rank(self) -> int | None:
        """Whose it is, where it is one rank's."""
        return next(iter(self._ranks)) if len(self._ranks) == 1 else None

    def words(self) -> str:
        """For a person."""
        ranks = f"{len(self._ranks)} ranks, " if len(self._ranks) > 1 else ""
        words = f"flight recorder: {ranks}{self.entries} collectives, {self.pending} not completed"
        first = self._first
        if first is None:
            return words
        group = first["pg_desc"] or first["pg"]
        where = f" of {group[:200]}" if group else ""
        number = f" seq {first['seq']}" if first["seq"] is not None else ""
        return f"{words}; the first is {first['op']}{number}{where}, {first['state'] or 'unknown'}"

    def details(self) -> dict[str, str | int]:
        """For detectors."""
        details: dict[str, str | int] = {"detail": "flight_recorder", "pending": self.pending}
        if self._first is not None:
            details |= {
                name: self._first[key]
                for name, key in (("op", "op"), ("seq", "seq"), ("group", "pg_desc"))
                if self._first[key] not in (None, "")
            }
        return details


def _place(one: dict[str, Any]) -> tuple[float, float]:
    record, seq = one["record_id"], one["seq"]
    return (
        record if record is not None else float("inf"), seq if seq is not None else float("inf"),
    )  # fmt: skip


class _Stacks:
    """Where main threads stand; where no thread is named, all."""

    def __init__(self) -> None:
        self.threads = 0
        self._pids: set[int] = set()
        self._tops: Counter[str] = Counter()
        self._main: list[str] = []
        self._reason = ""

    def take(self, one: dict[str, Any]) -> None:
        """One object of `read_stacks`."""
        self.threads += 1
        if one.get("pid") is not None:
            self._pids.add(one["pid"])
        self._reason = self._reason or (one.get("reason") or "")
        if one["top"]:
            self._tops[one["top"][:300]] += 1
        is_main = one.get("name") == "MainThread"
        if one.get("frames") and (is_main or not self._main):
            self._main = one["frames"][:FRAMES_SHOWN]

    def words(self) -> str:
        """For a person: innermost first."""
        many = f"{len(self._pids)} processes, " if len(self._pids) > 1 else ""
        why = f" after {self._reason}" if self._reason else ""
        words = f"stacks{why}: {many}{self.threads} threads"
        if self._main:
            return f"{words}; " + " < ".join(frame[:300] for frame in self._main)
        tops = ", ".join(f"{count} in {top}" for top, count in self._tops.most_common(TOP_MAX))
        return f"{words}; {tops}" if tops else words
