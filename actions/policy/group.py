"""Hang and fail-slow without a counter's evidence: stacks, then the smallest parallel group."""

from __future__ import annotations

from typing import NamedTuple

from actions.policy.case import STANDSTILL, Case, isolation, listed, said
from actions.policy.cost import Option, copies_survive, options
from actions.policy.table import Branch, Rung, Test, always
from telemetry.attempts import Attempt
from telemetry.findings import Verdict

GPUS = 8  # of a node of which nobody said


class Choice(NamedTuple):
    """The option that is taken, None where none is possible, and how both compare."""

    taken: Option | None
    words: str


def _stacks(case: Case) -> Attempt | None:
    """The parallel group that the stacks of this incident name."""
    answer = case.answer("stacks")
    return answer if answer is not None and answer.nodes else None


def choose(case: Case) -> Choice:
    """The cheaper of the ways that are possible: replacements free, checkpoint copies left."""
    group = _stacks(case)
    assert group is not None
    gpus = case.context.gpus_per_node or GPUS
    nodes = max(len(case.context.job_nodes), len(group.nodes or ()))
    both = options(group, nodes, gpus, case.policy)
    words = "; ".join(_words(case, option) for option in both)
    forced = case.policy.group_eviction
    possible = [
        option
        for option in both
        if forced in ("cheaper", option.way) and not _obstacle(case, option)
    ]
    return Choice(min(possible, key=lambda option: option.lost_gpu_h, default=None), words)


def _words(case: Case, option: Option) -> str:
    obstacle = _obstacle(case, option)
    survive = copies_survive(case.context.copies, option.nodes)
    note = obstacle or ("checkpoint copies unknown" if survive is None else "copies survive")
    return (
        f"{option.way} {len(option.nodes)} nodes: {option.lost_gpu_h:.0f} GPU-hours lost as "
        f"expected, {100.0 * option.chance:.0f} % sure to hold the bad ones, {note}"
    )


def _obstacle(case: Case, option: Option) -> str:
    """Why this way is closed, "" where it is open; what is unknown closes nothing."""
    free = case.context.replacements
    if free is not None and free < len(option.nodes):
        return f"only {free} replacements free"
    if copies_survive(case.context.copies, option.nodes) is False:
        return "the last copy of a checkpoint would go"
    return ""


def _lead(case: Case) -> str:
    group = _stacks(case)
    assert group is not None
    assert group.nodes
    name = f"the parallel group {group.group}" if group.group else "one parallel group"
    return f"The stacks' outliers share {name}: {listed(sorted(group.nodes))}"


def _is_way(way: str) -> Test:
    def applies(case: Case) -> bool:
        taken = choose(case).taken
        return taken is not None and taken.way == way

    return applies


def _evict(case: Case) -> Verdict:
    taken, words = choose(case)
    assert taken is not None
    reason = (
        f"{_lead(case)}. {words}; group_eviction is {case.policy.group_eviction}, so "
        f"{taken.way}: {listed(taken.nodes)}."
    )
    return isolation(case, GROUP.name, reason, nodes=taken.nodes)


def _closed(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}. {choose(case).words}; group_eviction is {case.policy.group_eviction}, and "
        "no way is open: page, save a checkpoint or free nodes first."
    )
    return said(case, GROUP.name, "page", reason)


def _is_hang(case: Case) -> bool:
    """A job that stands still, of which no stacks were told yet."""
    stands = any(line.detector in STANDSTILL for line in case.incident.evidence)
    return case.incident.kind == "job_hang" and stands and case.answer("stacks") is None


def _hang(case: Case) -> Verdict:
    reason = (
        f"The job stands still: {case.first_text}, and no node is under suspicion. Compare the "
        "stacks of all ranks: the smallest parallel group that holds all outliers goes."
    )
    return said(case, HANG.name, "diagnose", reason, step="stacks")


GROUP = Rung(
    "parallel group of the outliers",
    "Do the stacks' outliers share a parallel group?",
    lambda case: (
        (case.incident.kind in ("job_hang", "job_slow") or case.step_time is not None)
        and _stacks(case) is not None
    ),
    (
        Branch(
            "to evict it whole loses fewer GPU-hours as expected, and is possible",
            "isolate the whole group and restart",
            _is_way("whole"),
            _evict,
        ),
        Branch(
            "to evict those that stand out most loses fewer, or only that is possible",
            "isolate those that stand out most and restart",
            _is_way("ranked"),
            _evict,
        ),
        Branch("no replacements, or the last checkpoint copy would go", "page", always, _closed),
    ),
)
HANG = Rung(
    "hang without suspect",
    "Does the job stand still, and did nobody compare its stacks yet?",
    _is_hang,
    (Branch("yes", "compare the stacks of all ranks", always, _hang),),
)
