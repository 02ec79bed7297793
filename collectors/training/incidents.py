"""Causes and echoes: the first failure is the cause, what others shout afterwards is not.

Tracebacks are put together per speaker; the launcher's own traceback is never a cause.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from collectors.training.causes import failure_class
from collectors.training.failures import exited
from collectors.training.model import Failure, Value

TRACEBACK_LINES_MAX = 2_000
ELASTIC_LINES_MAX = 2_000
OPEN_MAX = 256
TEXT_MAX = 4_096
APART_S = 7_200.0  # failures further apart have nothing to do with each other

_EXCEPTION = re.compile(
    r"(?P<name>[A-Za-z_][\w.]{0,200}?(?:Error|Exception|Interrupt|Exit))(?::|$|\s*$)"
)
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<name>[\w:]{1,200})'")
_FRAME = re.compile(r"\s{1,8}File \"[^\"\n]{1,500}\", line \d{1,9}")
_WHERE = re.compile(
    r"Rank \d{1,7}, (?:node (?P<node>[\w.-]{1,253}), )?device (?P<device>\d{1,4}),"
    r" iteration (?P<step>\d{1,12})"
)
_LAUNCHER = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")


class Incident:
    """Whether a failure is the first since the job last ended a step."""

    def __init__(self) -> None:
        self._cause: Failure | None = None
        self._newest: Failure | None = None  # that has a time
        self._slurm_step: Value = None
        self._teardowns: set[int | None] = set()

    def progressed(self) -> None:
        """The job ended a step: what fails next is another story."""
        if self._cause is not None or self._teardowns:
            self._cause = self._newest = self._slurm_step = None
            self._teardowns.clear()

    def judge(self, failure: Failure) -> Failure | None:
        """The failure with its role, None where it adds nothing."""
        slurm_step = failure.more.get("slurm_step")
        other = None not in (slurm_step, self._slurm_step) and slurm_step != self._slurm_step
        if other or (self._newest is not None and _far(self._newest, failure)):
            self.progressed()
        self._slurm_step = self._slurm_step if slurm_step is None else slurm_step
        if failure.at_s is not None or failure.yearless_s is not None:
            self._newest = failure
        if failure.detail == "teardown":
            if failure.rank in self._teardowns or len(self._teardowns) >= 100_000:
                return None
            self._teardowns.add(failure.rank)
        if failure.role == "warning":
            return failure
        if self._cause is not None:
            failure.role = "echo"
            failure.more["echo_of"] = self._cause.detail or self._cause.class_
        elif failure.role == "cause":
            self._cause = failure
        return failure


def _far(one: Failure, other: Failure) -> bool:
    if one.at_s is not None and other.at_s is not None:
        return abs(one.at_s - other.at_s) > APART_S
    if one.yearless_s is not None and other.yearless_s is not None:
        return abs(one.yearless_s - other.yearless_s) > APART_S
    return False


@dataclass(frozen=True, slots=True)
class _Open:
    lines: int
    thrown: str


class Tracebacks:
    """What is not yet complete, per speaker."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._said: OrderedDict[str, str] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._open)

    def read(self, key: str, labelled: bool, text: str) -> Failure | None:
        """The failure that a line completes."""
        words = text.lstrip()
        if words.startswith("Traceback (most recent call last)"):
            self._begin(key, "")
            return None
        if _THROWN.match(words) is not None:
            self._begin(key, text[:TEXT_MAX])
            return None
        one = self._open.get(key)
        found = _EXCEPTION.match(text)
        if one is None:
            if _FRAME.match(text) is not None:
                self._begin(key, "")
                return None
            if found is not None and labelled:
                return self._failed(key, found["name"], text)
            return None
        return self._next(key, one, found, text)

    def repeats(self, key: str, text: str) -> bool:
        """Whether a "what():" says again what the speaker has said."""
        words = text.lstrip()
        return words.startswith("what():") and words[7:].strip() in self._said.get(key, "")

    def finish(self) -> list[tuple[str, Failure]]:
        """Tracebacks whose last words were cut off are failures all the same."""
        rest = [(key, self._failed(key, "", one.thrown or "Traceback (most recent call last):"))
                for key, one in list(self._open.items())]  # fmt: skip
        self._open.clear()
        return rest

    def _next(self, key: str, one: _Open, found: re.Match[str] | None, text: str) -> Failure | None:
        if one.thrown:  # "what():" follows at once and says why
            words = text.lstrip()
            said = f"{one.thrown} {words}" if words.startswith("what():") else one.thrown
            return self._failed(key, "", said)
        if found is not None:
            return self._failed(key, found["name"], text)
        if one.lines >= TRACEBACK_LINES_MAX:
            return self._failed(key, "", text)
        self._open[key] = _Open(one.lines + 1, "")
        return None

    def _begin(self, key: str, thrown: str) -> None:
        self._open[key] = _Open(0, thrown)
        self._open.move_to_end(key)
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)

    def _failed(self, key: str, name: str, text: str) -> Failure:
        self._open.pop(key, None)
        class_, detail = failure_class(name, text)
        failure = Failure(class_, text[:TEXT_MAX], detail, more={"event": "exception"})
        if name:
            failure.more["exception"] = name
        if name.rpartition(".")[2] in _LAUNCHER:
            failure.role, failure.detail = "echo", "launcher"
        self.remember(key, text)
        return failure

    def remember(self, key: str, text: str) -> None:
        """What a speaker has said."""
        self._said[key] = text[:TEXT_MAX]
        self._said.move_to_end(key)
        if len(self._said) > OPEN_MAX:
            self._said.popitem(last=False)


def placed(failure: Failure) -> Failure:
    """With node, device and step where the words name them."""
    found = _WHERE.search(failure.text)
    if found is not None:
        failure.host = found["node"] or failure.host
        failure.more |= {"device": int(found["device"]), "step": int(found["step"])}
    return failure


_ELASTIC = re.compile(
    r"\s{0,4}(?P<name>time|host|rank|exitcode|error_file|traceback)\s{1,8}: (?P<value>.{1,2000})"
)
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,5})\)")
_CODE = re.compile(r"(-?\d{1,5}) \(pid: (\d{1,10})\)")


class Elastic:
    """torchrun's summary of who failed first; it is open from `ChildFailedError` on."""

    def __init__(self) -> None:
        self._left = 0
        self._fields: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self._left > 0

    def begin(self) -> None:
        """The summary follows."""
        self._left, self._fields = ELASTIC_LINES_MAX, {}

    def read(self, text: str) -> tuple[Failure, str] | None:
        """A process that failed, and the time as it is printed, at the last line of its block."""
        self._left -= 1
        found = _ELASTIC.match(text)
        if found is None:
            if self._fields.get("exitcode") and text.startswith("====="):
                self._left = 0
            return None
        self._fields[found["name"]] = found["value"].strip()
        if found["name"] != "traceback":
            return None
        fields, self._fields = self._fields, {}
        failure = _of_block(fields, text)
        return (failure, fields.get("time", "")) if failure is not None else None


def _of_block(fields: dict[str, str], text: str) -> Failure | None:
    code = _CODE.match(fields.get("exitcode", ""))
    if code is None:
        return None
    failure = exited(int(code[1]), text.strip()[:TEXT_MAX], pid=int(code[2]))
    failure.more["event"] = "elastic_root_cause"
    rank = _RANK.match(fields.get("rank", ""))
    if rank is not None:
        failure.rank, failure.local_rank = int(rank[1]), int(rank[2])
    failure.host = fields.get("host")
    return failure
