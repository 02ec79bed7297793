"""The machine's own frames in the engine: evidence about a node, never an incident alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from streams.fold import Fold
from streams.replay import Outcome
from telemetry.findings import Finding
from telemetry.records import Arrived, Frame
from tests.folding import folded, numbered, simulated

NODES, MINUTES = 8, 25.0
SICK, FULL = "n003", "n007"
BEGIN_S = 600.0


def host_frame(node: str, at_s: float, seq: int, since_s: float, sick: bool) -> Frame:
    """A node as the agent tells it; a sick one waits for memory, swaps and breaks a disk."""
    bad_s = max(0.0, since_s - BEGIN_S) if sick else 0.0
    begun = since_s >= BEGIN_S
    wobble = (seq * 7 + hash_of(node)) % 5
    return Frame(
        at=at_s, node=node, source="host", started_at=1.0, seq=seq,
        entities={"disk": ["/", "/data"], "node": ["node"]},
        metrics={
            "host_cpu_busy_percent": [30.0 + wobble],
            "host_memory_pressure_seconds_total": [0.5 * bad_s],
            "host_swap_in_pages_total": [5_000.0 * bad_s],
            "disk_filesystem_free_ratio": [
                0.6, 0.02 if node == FULL and begun else 0.5 + 0.002 * wobble,
            ],
            "disk_filesystem_errors_total": [float(bad_s // 10), None],
        },
    )  # fmt: skip


def hash_of(node: str) -> int:
    return int(node[1:])


def with_host(log: Sequence[Arrived], *, sick: bool) -> Iterator[tuple[float, object]]:
    """Beside each frame of the GPUs one of the machine."""
    first_s = log[0].arrival
    seqs: dict[str, int] = {}
    for arrived in log:
        yield arrived.arrival, arrived.record
        record = arrived.record
        if isinstance(record, Frame) and record.source == "gpu":
            seq = seqs[record.node] = seqs.get(record.node, -1) + 1
            ill = sick and record.node == SICK
            yield (
                arrived.arrival,
                host_frame(record.node, record.at, seq, arrived.arrival - first_s, ill),
            )


@lru_cache(maxsize=2)
def run(sick: bool) -> tuple[Fold, Outcome]:
    return folded(numbered(with_host(simulated(NODES, MINUTES), sick=sick)))


def findings(outcome: Outcome) -> list[Finding]:
    return [
        one for one in outcome.findings.values()
        if one.metric.startswith(("host_", "disk_"))
    ]  # fmt: skip


def test_a_machine_that_swaps_waits_and_breaks_its_disk_is_evidence_with_its_place() -> None:
    _, outcome = run(sick=True)
    found = {(one.node, one.metric, one.entity) for one in findings(outcome)}
    assert {
        (SICK, "host_memory_pressure_seconds_total", ""),
        (SICK, "host_swap_in_pages_total", ""),
        (SICK, "disk_filesystem_errors_total", "disk:/"),
        (FULL, "disk_filesystem_free_ratio", "disk:/data"),
    } <= found
    assert {"evidence"} == {one.role for one in findings(outcome)}


def test_healthy_machines_say_nothing_and_no_incident_is_opened_by_either() -> None:
    _, outcome = run(sick=False)
    assert {FULL} >= {one.node for one in findings(outcome)}
    plain = {one.id for one in folded(simulated(NODES, MINUTES))[1].incidents.values()}
    for sick in (False, True):
        assert plain == {one.id for one in run(sick)[1].incidents.values()}
