"""What was injected against what was isolated: found, missed, wrong, delay.

A fault that expects isolation is found when a verdict given between its onset and 15 minutes after
its end isolates one or more of its nodes. Every node that a verdict isolated although no such
fault of that time names it is a wrong isolation.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from telemetry.errors import InputError
from telemetry.findings import ISOLATING, Cause, Incident, Isolation, six_digits

GRACE_S = 900.0
TRUTH_BYTES_MAX = 16 * 1024 * 1024
_REMEDY = "see the capture format for truth.json"

Expect = Literal["isolate", "page", "none"]


class TruthFault(msgspec.Struct, frozen=True):
    """One fault as it really was; times in Unix seconds, `until` None for the end of the run.

    fault   the simulator's name for it, "" in truths written by people
    """

    kind: str
    nodes: list[str]
    onset: float
    expect: Expect
    until: float | None = None
    cause: Cause = "unknown"
    fault: str = ""

    def covers(self, at_s: float, end_s: float) -> bool:
        """Whether a verdict at `at_s` can be about this fault; both limits count."""
        until_s = end_s if self.until is None else self.until
        return self.onset <= at_s <= until_s + GRACE_S


class Truth(msgspec.Struct, frozen=True):
    """`truth.json` as a whole."""

    faults: list[TruthFault]


class Outcome(msgspec.Struct, frozen=True):
    """What became of one fault that expects isolation; delay in seconds, null where missed."""

    kind: str
    nodes: list[str]
    onset: float
    found: bool
    delay: float | None = None
    incident: str = ""
    fault: str = ""


class Score(msgspec.Struct, frozen=True):
    """Counts, and the cases behind them.

    delay   mean seconds from onset to verdict over the found, null where none was found
    """

    expected: int
    found: int
    missed: int
    wrong: int
    delay: float | None
    delay_max: float | None
    outcomes: list[Outcome]
    wrong_isolations: list[Isolation]


def load_truth(path: Path, known_nodes: Collection[str]) -> Truth:
    """The truth of a run. Raises InputError, one line with the file and the remedy."""
    try:
        with path.open("rb") as stream:
            data = stream.read(TRUTH_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a readable truth.json") from error
    if len(data) > TRUTH_BYTES_MAX:
        raise InputError(f"{path}: larger than 16 MB; {_REMEDY}")
    try:
        truth = msgspec.json.decode(data, type=Truth)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; {_REMEDY}") from error
    for place, fault in enumerate(truth.faults):
        if not _is_ordered(fault):
            raise InputError(f"{path}: faults[{place}]: until lies before onset; correct the times")
        for node in fault.nodes:
            if node not in known_nodes:
                raise InputError(
                    f"{path}: faults[{place}]: unknown node {node!r}{_hint(node, known_nodes)};"
                    " name a node of the recording"
                )
    return truth


def score(incidents: Sequence[Incident], truth: Truth, end_s: float) -> Score:
    """Judge a run; `end_s` is the event time at which the recording ends, Unix seconds."""
    isolations = sorted(set(_isolations(incidents)), key=lambda i: (i.at, i.node, i.incident))
    wanted = [fault for fault in truth.faults if fault.expect == "isolate"]
    outcomes = [_outcome(fault, isolations, end_s) for fault in wanted]
    wrong: dict[str, Isolation] = {}
    for isolation in isolations:
        if not any(_explains(fault, isolation, end_s) for fault in wanted):
            wrong.setdefault(isolation.node, isolation)
    delays = [outcome.delay for outcome in outcomes if outcome.delay is not None]
    return Score(
        expected=len(outcomes),
        found=len(delays),
        missed=len(outcomes) - len(delays),
        wrong=len(wrong),
        delay=six_digits(math.fsum(delays) / len(delays)) if delays else None,
        delay_max=max(delays, default=None),
        outcomes=outcomes,
        wrong_isolations=list(wrong.values()),
    )


def _isolations(incidents: Sequence[Incident]) -> Iterator[Isolation]:
    """Every node that any verdict of any incident isolated."""
    for incident in incidents:
        for verdict in (incident.verdict, *incident.verdicts):
            if verdict.action in ISOLATING:
                for node in verdict.targets:
                    yield Isolation(node=node, at=verdict.at, incident=incident.id)


def _outcome(fault: TruthFault, isolations: Sequence[Isolation], end_s: float) -> Outcome:
    first = next((i for i in isolations if _explains(fault, i, end_s)), None)
    return Outcome(
        kind=fault.kind,
        nodes=fault.nodes,
        onset=fault.onset,
        found=first is not None,
        # Unix times carry no more than milliseconds.
        delay=None if first is None else round(first.at - fault.onset, 3),
        incident="" if first is None else first.incident,
        fault=fault.fault,
    )


def _explains(fault: TruthFault, isolation: Isolation, end_s: float) -> bool:
    return isolation.node in fault.nodes and fault.covers(isolation.at, end_s)


def _is_ordered(fault: TruthFault) -> bool:
    until_s = math.inf if fault.until is None else fault.until
    return fault.onset <= until_s


def _hint(node: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(node[:253], sorted(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
