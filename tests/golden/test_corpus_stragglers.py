"""ByteDance's straggler traces through the real fold: one has a slow GPU, two have none.

AR: the worker of data-parallel rank 0, stage 0 is slow from the first recorded step to the last.
ST: the whole last stage is longer, by the model's partitioning. SE: sequence lengths differ, and
each step is long for other workers.
"""

from __future__ import annotations

import pytest

from streams.replay import Outcome
from telemetry.findings import ISOLATING
from tests.folding import folded
from tests.straggler_traces import JOB, healed, log_of, node_of, rank_of, steps_of

SLOW = (0, 0)


def told(trace: str) -> Outcome:
    return folded(log_of(trace, steps_of(trace)))[1]


def test_ar_names_its_one_worker_and_nobody_else() -> None:
    found = list(told("AR").findings.values())
    assert {(node_of(SLOW), f"rank:{rank_of(SLOW, 'AR', 4)}")} == {
        (f.node, f.entity) for f in found
    }
    (slow,) = found
    assert ("straggler", "evidence", "gpu_slow", "open") == (
        slow.detector, slow.role, slow.kind, slow.state,
    )  # fmt: skip
    assert slow.observed is not None
    assert slow.expected is not None
    assert 2.2 < slow.observed / slow.expected < 2.5


def test_a_rank_that_was_always_slow_is_evidence_and_no_incident() -> None:
    """The job never ran faster: nobody can say that it became slow, so nothing acts."""
    assert {} == told("AR").incidents


@pytest.mark.parametrize("trace", ["SE", "ST"])
def test_where_no_worker_is_ill_nobody_is_named(trace: str) -> None:
    outcome = told(trace)
    assert {} == outcome.incidents
    assert [] == [f for f in outcome.findings.values() if f.node or f.entity]


def test_a_job_that_becomes_slow_through_that_worker_loses_its_node() -> None:
    _, outcome = folded(log_of("AR", healed(steps_of("AR"))))
    (incident,) = outcome.sorted_incidents()
    assert ("gpu_slow", "hardware", JOB) == (incident.kind, incident.cause, incident.job)
    assert [node_of(SLOW)] == [suspect.node for suspect in incident.suspects]
    assert incident.verdict.action in ISOLATING
    assert [node_of(SLOW)] == incident.verdict.targets


def test_the_traces_are_whole() -> None:
    """Steps and workers as the traces' authors state them."""
    shapes = {trace: steps_of(trace) for trace in ("AR", "SE", "ST")}
    assert {"AR": (44, 16), "SE": (45, 64), "ST": (32, 8)} == {
        trace: (len(steps), len(steps[0][3])) for trace, steps in shapes.items()
    }
    assert all(len(times) == len(steps[0][3]) for steps in shapes.values() for *_, times in steps)
