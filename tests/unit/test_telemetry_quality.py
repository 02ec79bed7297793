"""What a collector gets wrong is said of the collector, and accuses no node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from detectors.base import FindingBook, FloatArray, Sighting, Tick
from detectors.robust_peers import RobustPeers
from detectors.telemetry_quality import TelemetryQuality
from telemetry.metrics import BY_NAME
from telemetry.settings import EngineSettings
from tests.fakes import cluster

NODES = [f"n{i:02d}" for i in range(16)]
ENGINE, BUSY = "gpu_engine_active_ratio", "gpu_utilization_percent"
SM, POWER, TEMPERATURE = "gpu_sm_active_ratio", "gpu_power_watts", "gpu_temperature_celsius"
FRAMEBUFFER = "gpu_framebuffer_used_mib"
VIEW = cluster(16)
RULES = EngineSettings()


def one_tick(
    at: int, values: Mapping[str, FloatArray], devices: FloatArray | None = None
) -> Tick:  # fmt: skip
    """A tick of some GPU metrics, values of shape (nodes,); `devices` of shape (nodes, 8)."""
    shape = (len(values), len(NODES))
    watched = np.empty((0, 0, 0)) if devices is None else devices[None]
    return Tick(
        source="gpu", index=at, at_s=10.0 * at, interval_s=10.0, nodes=tuple(NODES),
        group=np.zeros(16, dtype=np.int64), metrics=tuple(BY_NAME[name] for name in values),
        worst=np.array(list(values.values()))[None], flags=np.zeros((1, *shape), dtype=np.int8),
        mean=np.full(shape, math.nan), sd=np.full(shape, math.nan),
        entity=np.zeros(shape, dtype=np.int64),
        entities={node: {"gpu": [f"G{i}" for i in range(8)]} for node in NODES},
        watched_metrics=() if devices is None else (BY_NAME[FRAMEBUFFER],), watched=watched,
    )  # fmt: skip


def full(value: float, **others: float) -> FloatArray:
    """One value on all nodes, another on those that are named."""
    values = np.full(16, value)
    for node, other in others.items():
        values[NODES.index(node)] = other
    return values


def noise(at: int) -> FloatArray:
    return 640.0 + np.random.default_rng(at).random(16)


def said_to(detector: TelemetryQuality | RobustPeers, ticks: Sequence[Tick]) -> list[Sighting]:
    return [seen for one in ticks for seen in detector.on_tick(one, VIEW, one.at_s)]


def stuck(first: int, count: int, engine: float, busy: float = 100.0) -> list[Tick]:
    return [
        one_tick(at, {ENGINE: full(0.98, n03=engine), BUSY: full(100.0, n03=busy),
                      SM: full(0.86, n03=engine)})
        for at in range(first, first + count)
    ]  # fmt: skip


def test_a11_a_ratio_of_zero_beside_full_utilisation_is_the_collectors_fault() -> None:
    detector = TelemetryQuality(RULES)

    assert [] == said_to(detector, [*stuck(1, 60, 0.98), *stuck(61, 59, 0.0)])
    said = said_to(detector, stuck(120, 1, 0.0))

    assert [("n03", ENGINE), ("n03", SM)] == [(s.node, s.metric) for s in said]
    assert {("telemetry_gap", "telemetry", "evidence")} == {(s.kind, s.cause, s.role) for s in said}
    assert [False, False] == [s.active for s in said_to(detector, stuck(121, 1, 0.98))]


def test_a11_the_peers_do_not_take_the_stuck_zero_for_idleness() -> None:
    assert [] == said_to(RobustPeers(RULES), [*stuck(1, 60, 0.98), *stuck(61, 120, 0.0)])


def test_a11_an_engine_that_really_idles_is_no_collectors_fault() -> None:
    """The healthy twin: utilisation agrees, so the peers may well judge it."""
    ticks = [*stuck(1, 60, 0.98), *stuck(61, 120, 0.0, busy=0.0)]

    assert [] == said_to(TelemetryQuality(RULES), ticks)
    assert {ENGINE, BUSY, SM} == {s.metric for s in said_to(RobustPeers(RULES), ticks)}


def gone(first: int, count: int, temperature: FloatArray) -> list[Tick]:
    return [
        one_tick(at, {TEMPERATURE: temperature, POWER: noise(at)})
        for at in range(first, first + count)
    ]


def test_a12_a_metric_that_vanishes_from_all_nodes_is_one_finding() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, gone(1, 30, full(60.0)))

    (seen,) = said_to(detector, gone(31, 60, full(math.nan)))

    assert ("", TEMPERATURE, "telemetry_gap", 300.0) == (
        seen.node, seen.metric, seen.kind, seen.onset_s,
    )  # fmt: skip
    assert "telemetry missing" in seen.text
    assert [False] == [s.active for s in said_to(detector, gone(91, 10, full(60.0)))]


def test_a12_alerts_on_a_vanished_metric_stay_open() -> None:
    detector, book = RobustPeers(RULES), FindingBook("main")
    ticks = [*gone(1, 60, full(60.0)), *gone(61, 12, full(60.0, n03=90.0)),
             *gone(73, 120, full(math.nan))]  # fmt: skip
    for seen in said_to(detector, ticks):
        book.say(seen, seen.onset_s)

    assert ["n03"] == [finding.node for finding in book.open_findings()]


def test_a12_one_node_that_loses_a_metric_is_named_as_missing() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, gone(1, 30, full(60.0)))

    (seen,) = said_to(detector, gone(31, 60, full(60.0, n03=math.nan)))

    assert ("n03", TEMPERATURE, "telemetry") == (seen.node, seen.metric, seen.cause)


def test_a12_a_node_that_is_silent_as_a_whole_has_not_lost_a_metric() -> None:
    detector = TelemetryQuality(RULES)
    ticks = [one_tick(at, {TEMPERATURE: full(60.0), POWER: noise(at)}) for at in range(1, 31)]
    for at in range(31, 90):
        power = noise(at)
        power[3] = math.nan
        ticks.append(one_tick(at, {TEMPERATURE: full(60.0, n03=math.nan), POWER: power}))

    assert [] == said_to(detector, ticks)


def test_a12_a_metric_that_never_came_is_not_missed() -> None:
    assert [] == said_to(TelemetryQuality(RULES), gone(1, 120, full(math.nan)))


def devices(first: int, count: int, *quiet: int, node: int = 3) -> list[Tick]:
    ticks = []
    for at in range(first, first + count):
        sent = np.full((16, 8), 71_500.0)
        sent[node, list(quiet)] = math.nan
        ticks.append(one_tick(at, {POWER: noise(at)}, sent))
    return ticks


def test_a17_one_gpu_that_goes_quiet_is_named() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, devices(1, 20))

    (seen,) = said_to(detector, devices(21, 30, 2))

    assert ("n03", "gpu:G2", "telemetry_gap") == (seen.node, seen.entity, seen.kind)
    assert [False] == [s.active for s in said_to(detector, devices(51, 1))]


def test_a17_a_node_whose_gpus_are_all_quiet_is_another_story() -> None:
    detector = TelemetryQuality(RULES)

    assert [] == said_to(detector, [*devices(1, 20), *devices(21, 30, *range(8))])


def frozen(first: int, count: int, *nodes: int) -> list[Tick]:
    ticks = []
    for at in range(first, first + count):
        power = noise(at)
        power[list(nodes)] = 651.327
        ticks.append(one_tick(at, {POWER: power}))
    return ticks


def test_a17_power_that_repeats_to_the_last_digit_is_frozen() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, frozen(1, 10))

    assert [] == said_to(detector, frozen(11, 19, 3))
    (seen,) = said_to(detector, frozen(30, 30, 3))

    assert ("n03", POWER, "telemetry_gap") == (seen.node, seen.metric, seen.kind)
    assert [False] == [s.active for s in said_to(detector, frozen(60, 1))]


def test_a17_all_power_values_that_freeze_are_one_finding() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, frozen(1, 10))

    (seen,) = said_to(detector, frozen(11, 60, *range(16)))

    assert ("", "16 of 16") == (seen.node, seen.text[-14:-6])


def test_a17_whole_watts_may_repeat() -> None:
    ticks = [one_tick(at, {POWER: full(70.0)}) for at in range(1, 120)]

    assert [] == said_to(TelemetryQuality(RULES), ticks)


def test_a_late_frame_alone_is_no_news() -> None:
    detector = TelemetryQuality(RULES)
    said_to(detector, gone(1, 30, full(60.0)))
    late = [replace(one, partial=True) for one in gone(31, 60, full(math.nan))]

    assert [] == said_to(detector, late)
