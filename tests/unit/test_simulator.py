"""The simulator: seeded, labelled, in order of arrival."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from evaluation.cluster import pci_address
from evaluation.devices import ASKED_FOR
from evaluation.faults import KINDS, FaultSpec, parse_fault
from evaluation.simulator import Simulation
from telemetry.errors import SettingsError
from telemetry.metrics import BY_NAME, CATALOGUE
from telemetry.records import Allocation, Event, Frame, Record, Settings, Steps

ONSET_S = 300.0
# What NumPy dispatches on beyond its baseline; names that a machine lacks are ignored.
CPU_FEATURES = (
    "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL X86_V3 X86_V4"
)


@cache
def simulated(
    kind: str | None = None, nodes: int = 8, minutes: float = 12.0, seed: int = 7
) -> Simulation:
    faults = [] if kind is None else [FaultSpec(kind, "n003", ONSET_S)]
    return Simulation(nodes, minutes=minutes, seed=seed, faults=faults)


@cache
def records(run: Simulation) -> list[Record]:
    return [record for _, record in run.records()]


def job_steps(run: Simulation) -> list[Steps]:
    return [r for r in records(run) if isinstance(r, Steps) and r.node == ""]


def frames(run: Simulation, source: str) -> list[Frame]:
    return [r for r in records(run) if isinstance(r, Frame) and r.source == source]


def step_time_s(steps: Sequence[Steps]) -> float:
    """Mean of plain training steps, far from onset and pauses."""
    times = [s.step_time_s[0] for s in steps if s.step_kind == "train"]
    return fmean(time for time in times if time is not None)


def slowdown(run: Simulation) -> float:
    """Step time after the onset over step time before it."""
    onset_s = run.start_s + ONSET_S
    steps = job_steps(run)
    return step_time_s([s for s in steps if s.at > onset_s + 10.0]) / step_time_s(
        [s for s in steps if s.at < onset_s]
    )


def digest(run: Simulation) -> str:
    wire = hashlib.sha256()
    for arrival_s, record in run.records():
        wire.update(msgspec.json.encode((arrival_s, record)))
    return wire.hexdigest()


def rates(run: Simulation, metric: str, node: str) -> list[list[tuple[float, float]]]:
    """Per entity the (time, rate per second) of a counter."""
    seen: dict[int, list[tuple[float, float]]] = defaultdict(list)
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for frame in frames(run, BY_NAME[metric].source):
        if frame.node != node:
            continue
        for unit, value in enumerate(frame.metrics[metric]):
            if value is None:
                continue
            if seen[unit]:
                at_s, before = seen[unit][-1]
                found[unit].append((frame.at, (value - before) / (frame.at - at_s)))
            seen[unit].append((frame.at, value))
    return [found[unit] for unit in sorted(found)]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    fault = FaultSpec("ecn", "n003", 60.0)
    first, again, other = (
        digest(Simulation(8, minutes=3.0, seed=seed, faults=[fault])) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "surroundings",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2", "NPY_DISABLE_CPU_FEATURES": CPU_FEATURES},
    ],
)
def test_hash_order_and_cpu_features_change_nothing(surroundings: dict[str, str]) -> None:
    program = (
        "import sys; sys.path.insert(0, '.');"
        "from tests.unit.test_simulator import digest, Simulation, FaultSpec;"
        "print(digest(Simulation(8, minutes=2.0, seed=7, faults=[FaultSpec('leaf', '3', 30.0)])))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **surroundings}, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    here = Simulation(8, minutes=2.0, seed=7, faults=[FaultSpec("leaf", "3", 30.0)])
    assert done.stdout.strip() == digest(here)


def test_a_simulation_can_be_read_twice() -> None:
    run = simulated("thermal", minutes=3.0 + ONSET_S / 60.0)
    assert digest(run) == digest(run)


def test_the_run_is_made_as_it_is_read() -> None:
    """Two years of it would never end; the first ten thousand records come at once."""
    endless = Simulation(8, minutes=1e6, seed=1).records()
    assert len(list(islice(endless, 10_000))) == 10_000


def test_records_come_in_order_of_arrival_and_settings_come_first() -> None:
    run = simulated("xid79")
    arrivals = [arrival_s for arrival_s, _ in run.records()]
    assert arrivals == sorted(arrivals)
    assert isinstance(records(run)[0], Settings)
    assert all(record.at < run.end_s for record in records(run))


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_every_stream_is_numbered_without_a_hole(kind: str | None) -> None:
    expected: dict[tuple[str, str, float], int] = defaultdict(int)
    for record in records(simulated(kind)):
        stream = (record.node, record.source, record.started_at)
        assert record.seq == expected[stream]
        expected[stream] += 1


def test_frames_carry_every_metric_of_their_source() -> None:
    run = simulated(minutes=2.0)
    for source in ("gpu", "nic"):
        names = {
            m.name
            for m in CATALOGUE
            if m.source == source and (not m.optional or m.name in ASKED_FOR)
        }
        for frame in frames(run, source):
            assert set(frame.metrics) == names
            for name, values in frame.metrics.items():
                assert len(values) == len(frame.entities[BY_NAME[name].device])


def test_values_stay_in_the_physical_range_and_few_are_blank() -> None:
    blank = total = 0
    for kind in ("thermal", "leaf"):
        run = simulated(kind)
        for frame in frames(run, "gpu") + frames(run, "nic"):
            for name, values in frame.metrics.items():
                metric = BY_NAME[name]
                total += len(values)
                blank += values.count(None)
                assert all(
                    metric.valid_min <= v <= metric.valid_max for v in values if v is not None
                )
    assert 0.0001 < blank / total < 0.002


@pytest.mark.parametrize("kind", [None, "ecn", "thermal", "xid13"])
def test_counters_never_fall(kind: str | None) -> None:
    run = simulated(kind)
    last: dict[tuple[str, str, int], float] = {}
    for frame in frames(run, "gpu") + frames(run, "nic"):
        for name, values in frame.metrics.items():
            if BY_NAME[name].kind != "counter":
                continue
            for unit, value in enumerate(values):
                if value is not None:
                    assert value >= last.get((frame.node, name, unit), 0.0)
                    last[frame.node, name, unit] = value


def test_healthy_error_counters_stay_below_the_effect_that_matters() -> None:
    run = simulated(minutes=30.0)
    for metric in CATALOGUE:
        if metric.class_ == "abnormal" and metric.kind == "counter" and not metric.optional:
            for node in ("n000", "n005"):
                for unit in rates(run, metric.name, node):
                    assert max(rate for _, rate in unit) < metric.effect_min


def test_the_listing_names_one_job_with_contiguous_stages_and_leaves_of_eight() -> None:
    run = simulated(nodes=32, minutes=1.0)
    listing = next(r for r in records(run) if isinstance(r, Allocation))
    (job,) = listing.jobs
    assert listing.last
    assert listing.count == 1
    assert [node.stage for node in job.nodes] == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
    assert [rank for node in job.nodes for rank in node.ranks] == list(range(256))
    assert {info.leaf for info in listing.nodes} == {f"leaf-0{leaf}" for leaf in range(4)}


def test_small_clusters_are_one_stage() -> None:
    listing = next(r for r in records(simulated(minutes=1.0)) if isinstance(r, Allocation))
    assert {node.stage for node in listing.jobs[0].nodes} == {0}


def test_the_published_ecn_case_slows_the_job_by_26_percent_and_marks_10_to_30_thousand() -> None:
    run = simulated("ecn")
    (fault,) = run.faults
    onset_s = run.start_s + ONSET_S

    assert slowdown(run) == pytest.approx(1.26, abs=0.02)
    marks = rates(run, "nic_ecn_marked_packets_total", "n003")
    sent = rates(run, "nic_transmit_bytes_total", "n003")
    late = [rate for at_s, rate in marks[fault.partner_port] if at_s > onset_s + 70.0]
    assert len(late) >= 5
    assert all(10_000.0 <= rate <= 30_000.0 for rate in late)
    assert all(rate < 10.0 for at_s, rate in marks[fault.partner_port] if at_s < onset_s)
    assert all(rate < 1e8 for at_s, rate in sent[fault.port] if at_s > onset_s + 70.0)
    assert all(rate > 1e9 for at_s, rate in sent[fault.port] if at_s < onset_s)
    assert fault.port // 2 == fault.partner_port // 2


def test_the_same_surge_without_a_slow_job_has_no_slow_step() -> None:
    run = simulated("ecn-only")
    (fault,) = run.faults
    marks = rates(run, "nic_ecn_marked_packets_total", "n003")[fault.partner_port]

    assert slowdown(run) == pytest.approx(1.0, abs=0.02)
    assert marks[-1][1] >= 10_000.0


def test_a_congested_leaf_marks_on_all_its_nodes_and_on_no_other() -> None:
    run = simulated("leaf", nodes=16)
    for node, bad in (("n000", True), ("n007", True), ("n008", False)):
        for unit in rates(run, "nic_ecn_marked_packets_total", node):
            assert (unit[-1][1] >= 10_000.0) is bad
    assert slowdown(run) == pytest.approx(1.3, abs=0.02)


def test_a_thermal_slowdown_heats_throttles_and_slows_and_a_hot_gpu_only_heats() -> None:
    for kind, mask, slow in (("thermal", 64.0, 1.2), ("hot", 0.0, 1.0)):
        run = simulated(kind)
        (fault,) = run.faults
        last = [f for f in frames(run, "gpu") if f.node == "n003"][-1]
        heat = last.metrics["gpu_temperature_celsius"]
        others = [
            value for unit, value in enumerate(heat) if unit != fault.gpu and value is not None
        ]
        mine = heat[fault.gpu]
        assert mine is not None
        assert mine > fmean(others) + 8.0
        assert last.metrics["gpu_throttle_reasons_mask"][fault.gpu] in (mask, mask and 64.0, 4.0)
        assert slowdown(run) == pytest.approx(slow, abs=0.02)
        late = rates(run, "gpu_thermal_violation_us_total", "n003")[fault.gpu][-1][1]
        assert (late > 200_000.0) is (kind == "thermal")


def test_xid_79_leaves_a_kernel_line_nulls_the_gpu_and_ends_the_steps() -> None:
    run = simulated("xid79")
    (fault,) = run.faults
    (event,) = [r for r in records(run) if isinstance(r, Event)]
    onset_s = run.start_s + ONSET_S

    assert (event.node, event.code, event.entity) == ("n003", 79, f"pci:{pci_address(fault.gpu)}")
    assert f"NVRM: Xid (PCI:{pci_address(fault.gpu)}): 79" in event.text
    assert max(s.at for s in job_steps(run)) < onset_s
    for frame in frames(run, "gpu"):
        if frame.node == "n003" and frame.at >= onset_s:
            assert all(values[fault.gpu] is None for values in frame.metrics.values())


def test_a_silent_node_stops_the_job_and_a_dead_agent_does_not() -> None:
    for kind, goes_on in (("silent", False), ("agent-dead", True)):
        run = simulated(kind)
        onset_s = run.start_s + ONSET_S
        assert max(r.at for r in records(run) if r.node == "n003") < onset_s
        assert max(r.at for r in records(run) if r.node == "n004") > run.end_s - 20.0
        assert (max(s.at for s in job_steps(run)) > onset_s) is goes_on


def test_nan_is_null_in_its_column_and_named() -> None:
    run = simulated("nan")
    onset_s = run.start_s + ONSET_S
    for step in job_steps(run):
        assert step.nonfinite == ([["loss", "grad_norm"]] if step.at >= onset_s else [])
        assert (step.loss[0] is None) is (step.at >= onset_s)


def test_user_code_ends_the_job_with_its_traceback() -> None:
    run = simulated("usercode")
    (event,) = [r for r in records(run) if isinstance(r, Event)]
    assert event.class_ == "user_code"
    assert "]: TypeError: " in event.text
    assert max(s.at for s in job_steps(run)) < run.start_s + ONSET_S


def test_an_application_xid_restarts_the_job_from_its_checkpoint() -> None:
    steps = job_steps(simulated("xid13"))
    numbers = [s.step[0] for s in steps]
    (turn,) = [place for place in range(1, len(numbers)) if numbers[place] < numbers[place - 1]]
    assert numbers[turn] == 1
    assert steps[turn].step_kind == "first"
    assert steps[turn].at - steps[turn - 1].at > 90.0


def test_a_slow_rank_computes_longer_only_where_the_fault_is_a_rank() -> None:
    for kind, alone in (("thermal", True), ("ecn", False), ("slow-code", False)):
        run = simulated(kind)
        (fault,) = run.faults
        last = [r for r in records(run) if isinstance(r, Steps) and r.node == "n003"][-1]
        times = [time for time in last.compute_time_s if time is not None]
        others = fmean(time for gpu, time in enumerate(times) if gpu != fault.gpu)
        assert (times[fault.gpu] > 1.2 * others) is alone


def test_a_checkpoint_is_one_long_step_in_which_all_gpus_dip() -> None:
    run = simulated(minutes=20.0)
    pauses = [s for s in job_steps(run) if s.step_kind == "checkpoint"]
    assert [s.step[0] for s in pauses][:2] == [101, 201]
    assert all(time is not None and time > 10.0 for s in pauses for time in s.step_time_s)
    dips = [
        frame
        for frame in frames(run, "gpu")
        if frame.at > run.start_s + 60.0
        and (frame.metrics["gpu_utilization_percent"][0] or 0.0) < 30.0
    ]
    assert len({frame.node for frame in dips}) > 4


def test_a_missed_scrape_is_not_sent_and_leaves_no_hole_in_the_numbers() -> None:
    run = Simulation(64, minutes=20.0, seed=1)
    due = 64 * 20 * 4
    sent = len(frames(run, "gpu"))
    assert due - 30 <= sent < due


def test_no_healthy_node_is_the_outlier_of_a_performance_metric_at_every_tick_by_much() -> None:
    run = Simulation(64, minutes=15.0, seed=3)
    total: dict[str, list[float]] = defaultdict(list)
    for frame in frames(run, "gpu"):
        if frame.at > run.start_s + 400.0:
            values = [v for v in frame.metrics["gpu_temperature_celsius"] if v is not None]
            total[frame.node].append(max(values))
    means = [fmean(values) for values in total.values()]
    assert max(means) - fmean(means) < BY_NAME["gpu_temperature_celsius"].effect_min


def test_the_truth_states_what_was_injected() -> None:
    run = simulated("leaf", nodes=16)
    assert run.truth() == {
        "faults": [
            {
                "kind": "fabric",
                "nodes": [f"n00{place}" for place in range(8)],
                "onset": run.start_s + ONSET_S,
                "until": None,
                "cause": "network",
                "expect": "page",
                "fault": "leaf",
                "size": "typical",
            }
        ]
    }


def test_a_fault_that_is_over_leaves_the_job_as_fast_as_before() -> None:
    run = Simulation(
        8, minutes=12.0, seed=7, faults=[FaultSpec("ecn", "n003", ONSET_S, duration_s=120.0)]
    )
    steps = job_steps(run)
    after = step_time_s([s for s in steps if s.at > run.start_s + 440.0])
    before = step_time_s([s for s in steps if s.at < run.start_s + ONSET_S])
    assert after / before == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("xid79@nod003+60", "did you mean 'n003'"),
        ("xid79@leaf-00+60", "name a node"),
        ("xid79@n003+60m", "more --minutes"),
    ],
)
def test_a_fault_without_a_place_or_time_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Simulation(8, minutes=10.0, faults=[parse_fault(text)])
