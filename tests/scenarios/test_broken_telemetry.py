"""A healthy node whose telemetry is broken is not isolated; the same in earnest, or beside a true
fault, still is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from actions.policy import verdict
from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.replay import Outcome
from telemetry.findings import ISOLATING, Incident
from telemetry.metrics import BY_NAME
from telemetry.records import Arrived, Event, EventType, Frame, Header

ODD = "n003"  # the node whose telemetry is broken
FROM_S = 900.0
MASK = "gpu_throttle_reasons_mask"
SEEDS = (1, 2)

Item = tuple[float, Header]
Change = Callable[[int, Frame], Frame]


def simulation(seed: int, *faults: str) -> Simulation:
    return Simulation(8, minutes=23.0, seed=seed, faults=[parse_fault(text) for text in faults])


def broken(run: Simulation, source: str, change: Change) -> Iterator[Item]:
    """The run, with the odd node's frames of a source changed; they are numbered from the onset."""
    number = 0
    for arrival_s, record in run.records():
        mine = isinstance(record, Frame) and (record.node, record.source) == (ODD, source)
        if mine and record.at >= run.start_s + FROM_S:
            assert isinstance(record, Frame)
            yield arrival_s, change(number, record)
            number += 1
        else:
            yield arrival_s, record


def told(records: Iterator[Item]) -> tuple[list[Incident], set[str]]:
    """The incidents, and the nodes that any verdict isolates."""
    fold, outcome = Fold(verdict), Outcome()
    for offset, (arrival_s, record) in enumerate(records):
        outcome.take(fold.step(Arrived(offset, arrival_s, record)))  # type: ignore[arg-type]
    assert fold.counters.conserved()
    incidents = outcome.sorted_incidents()
    acted = [v for i in incidents for v in i.verdicts if v.action in ISOLATING]
    return incidents, {node for one in acted for node in one.targets}


def forgets_its_counters(number: int, frame: Frame) -> Frame:
    """Every second answer has 0 for all that is counted, and the next one goes on as before."""
    if number % 2 == 0:
        return frame
    metrics = {
        name: [None if v is None else 0.0 for v in values]
        if BY_NAME[name].kind == "counter"
        else values
        for name, values in frame.metrics.items()
    }
    return msgspec.structs.replace(frame, metrics=metrics)


def says_zero(number: int, frame: Frame) -> Frame:
    """Nothing but zeros: the exporter lost its driver, or is starting."""
    zeros: dict[str, list[float | None]] = {
        name: [0.0] * len(values) for name, values in frame.metrics.items()
    }
    return msgspec.structs.replace(frame, metrics=zeros)


def scaled(name: str, by: float) -> Change:
    """An upgrade of the exporter prints one metric in another unit."""

    def change(number: int, frame: Frame) -> Frame:
        values = [None if v is None else v * by for v in frame.metrics[name]]
        return msgspec.structs.replace(frame, metrics={**frame.metrics, name: values})

    return change


def masked(bits: float) -> Change:
    """The throttle reasons of all GPUs."""

    def change(number: int, frame: Frame) -> Frame:
        values: list[float | None] = [bits] * len(frame.metrics[MASK])
        return msgspec.structs.replace(frame, metrics={**frame.metrics, MASK: values})

    return change


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("source", ["gpu", "nic"])
@pytest.mark.parametrize("change", [forgets_its_counters, says_zero])
def test_an_exporter_that_forgets_isolates_nobody(source: str, change: Change, seed: int) -> None:
    _, isolated = told(broken(simulation(seed), source, change))

    assert isolated == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_true_flap_is_found_although_the_exporter_forgets_now_and_then(seed: int) -> None:
    def change(number: int, frame: Frame) -> Frame:
        return forgets_its_counters(1 if number % 5 == 4 else 0, frame)

    _, isolated = told(broken(simulation(seed, f"flap@{ODD}+960"), "nic", change))

    assert isolated == {ODD}


@pytest.mark.parametrize(
    "change",
    [says_zero, scaled("gpu_power_watts", 0.001), scaled("gpu_sm_clock_mhz", 0.001)],
    ids=["zeros", "kilowatts", "gigahertz"],
)
def test_values_that_no_gpu_has_are_not_why_a_job_is_slow(change: Change) -> None:
    """They begin with the slowdown."""
    _, of_code = told(broken(simulation(1, "slow-code@n000+900"), "gpu", change))
    _, of_port = told(broken(simulation(1, "ecn@n005+900"), "gpu", change))

    assert of_code == set()
    assert of_port == {"n005"}


def test_a_throttle_mask_of_ones_says_nothing_and_one_bit_does() -> None:
    _, ones = told(broken(simulation(1), "gpu", masked(65_535.0)))
    _, hot = told(broken(simulation(1), "gpu", masked(64.0)))

    assert ones == set()
    assert hot == {ODD}


def line(
    run: Simulation, at_s: float, read_s: float, type_: EventType, code: int | None,
    class_: str, text: str, *, sent_s: float | None = None, spooled: bool = False,
) -> Item:  # fmt: skip
    """A kernel line of the odd node, written at one time and read at another."""
    entity = "pci:0000:1b:00" if type_ == "xid" else ""
    start_s = run.start_s
    sent_at = start_s + (read_s if sent_s is None else sent_s)
    event = Event(
        at=start_s + at_s, node=ODD, source="kernel", started_at=at_s, seq=0, sent_at=sent_at,
        spooled=spooled, type=type_, code=code, class_=class_, text=text, severity="critical",
        entity=entity,
    )  # fmt: skip
    return start_s + read_s + 0.05, event


XID = ("xid", 79, "bus", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
PANIC = ("os", None, "panic", "Kernel panic - not syncing: mce: Machine check")


def among(run: Simulation, item: Item) -> Iterator[Item]:
    return iter(sorted([*run.records(), item], key=lambda one: one[0]))


@pytest.mark.parametrize("said", [XID, PANIC], ids=["xid", "panic"])
@pytest.mark.parametrize("job", ["", "hang-training@n000+930"], ids=["runs", "hangs"])
@pytest.mark.parametrize("at_s", [-18_000.0, -300.0])
def test_a_kernel_line_that_is_read_long_after_it_was_written_pages(
    said: tuple[EventType, int | None, str, str], job: str, at_s: float
) -> None:
    """An agent that is installed, or reads anew, tells of what a node may have got over."""
    run = simulation(1, *([job] if job else []))
    incidents, isolated = told(among(run, line(run, at_s, FROM_S, *said)))

    assert isolated == set()
    (old,) = [i for i in incidents if ODD in {s.node for s in i.suspects}]
    assert old.verdict.action == "page"
    assert f"read {FROM_S - at_s:.0f} s after it was written" in old.evidence[0].text


@pytest.mark.parametrize("said", [XID, PANIC], ids=["xid", "panic"])
def test_a_kernel_line_that_is_new_or_waited_in_a_spool_isolates(
    said: tuple[EventType, int | None, str, str],
) -> None:
    run = simulation(1)
    _, new = told(among(run, line(run, FROM_S - 30.0, FROM_S, *said)))
    _, late = told(among(run, line(run, 0.0, 1_300.0, *said, sent_s=1.0, spooled=True)))

    assert new == {ODD}
    assert late == {ODD}


def test_links_that_fell_last_week_are_no_flap_of_today() -> None:
    run = simulation(1)
    downs = [
        line(run, -600_000.0 + 100.0 * i, FROM_S + i, "nic", None, "link_down", "Link DOWN")
        for i in range(4)
    ]
    items = iter(sorted([*run.records(), *downs], key=lambda one: one[0]))

    assert told(items)[1] == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_switch_that_takes_both_nodes_of_a_small_job_down_isolates_neither(seed: int) -> None:
    def run(fault: str) -> Simulation:
        return Simulation(2, minutes=30.0, seed=seed, faults=[parse_fault(fault)])

    assert told(run("switch-down@n001+900").records())[1] == set()
    assert told(run("nic-down@n001+900").records())[1] == {"n001"}
