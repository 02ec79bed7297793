"""Bursts through the whole engine: one incident, whatever the number of lines."""

from __future__ import annotations

import msgspec

from streams.replay import Outcome
from streams.snapshot import Snapshots
from telemetry.findings import Incident
from telemetry.records import Arrived, Control, Event
from tests.fakes import event
from tests.folding import fresh, numbered, simulated

BASE = simulated(8, 14.0)
START = BASE[0].arrival
GPU = "pci:0000:c3:00"


def kernel_line(code: int, after_s: float, seq: int, entity: str, severity: str = "critical",
                **more: object) -> tuple[float, Event]:  # fmt: skip
    at = START + after_s
    one = event("xid", at, "n003", code=code, entity=entity, text=f"NVRM: Xid ({entity}): {code}")
    one = msgspec.structs.replace(one, severity=severity, seq=seq, started_at=START, **more)
    return at, one


def with_lines(lines: list[tuple[float, Event]]) -> tuple[Arrived, ...]:
    items = [(a.arrival, a.record) for a in BASE]
    return numbered(sorted([*items, *lines], key=lambda item: item[0]))


def run(log: tuple[Arrived, ...]) -> tuple[list[Incident], int, int]:
    """Incidents, revisions of findings, bytes of the largest snapshot."""
    fold, outcome, revisions, biggest = fresh(), Outcome(), 0, 0
    for arrived in log:
        said = fold.step(arrived)
        revisions += len(said.findings)
        outcome.take(said)
        if arrived.offset % 4_000 == 0:
            size = sum(len(value) for _, value in Snapshots("main").take(fold))
            biggest = max(biggest, size)
    assert fold.counters.conserved()
    return outcome.sorted_incidents(), revisions, biggest


def storm(lines: int) -> list[tuple[float, Event]]:
    """95 on one GPU for ten minutes, with 28 other pairs of code and device among them."""
    return [
        kernel_line(95 if i % 29 < 20 else 45, 60.0 + 600.0 * i / lines, i,
                    GPU if i % 29 < 20 else f"pci:0000:{i % 29:02x}:00")
        for i in range(lines)
    ]  # fmt: skip


def test_b8_a_storm_is_one_incident_with_a_count_and_memory_stays_flat() -> None:
    few, many = run(with_lines(storm(2_000))), run(with_lines(storm(16_000)))

    (incident,) = many[0]
    assert ["n003"] == incident.verdict.targets
    (line,) = [e for e in incident.evidence if e.metric == "xid_95"]
    assert "times: Xid 95" in line.text
    assert many[1] <= few[1] + 60, (few[1], many[1])  # eight times the lines: three doublings more
    assert many[2] <= 1.1 * few[2]


def test_b7_a_burst_of_echoes_is_one_incident_at_its_root() -> None:
    root = kernel_line(149, 60.0, 0, "pci:0000:dc:00",
                       details={"word": "fatal", "action": "reset_gpu"})  # fmt: skip
    echoes = [
        kernel_line(45, 60.2 + 0.18 * i, 1 + i, f"pci:0000:{i % 4:02x}:00", "warning")
        for i in range(10)
    ]
    (incident,) = run(with_lines([root, *echoes]))[0]

    assert ("nvlink_fault", ["pci:0000:dc:00"]) == (
        incident.kind, [s.entity for s in incident.suspects],
    )  # fmt: skip
    assert 4 == len({e.entity for e in incident.evidence if e.metric == "xid_45"})


def test_b15_an_operator_s_word_ends_what_is_open_of_a_node() -> None:
    lost = kernel_line(79, 60.0, 0, GPU)
    word = Control(at=START + 120.0, node="", source="console", started_at=START, seq=0,
                   action="released", target="n003")  # fmt: skip
    log = with_lines([lost, (START + 120.0, word)])  # type: ignore[list-item]
    fold, outcome = fresh(), Outcome()
    for arrived in log:
        outcome.take(fold.step(arrived))

    states = {f.metric: (f.state, f.at) for f in outcome.findings.values() if f.node == "n003"}
    assert states["xid_79"] == ("clear", START + 120.0)
