"""Rows of metrics appear when a frame first carries them, without touching what is there."""

from __future__ import annotations

import numpy as np

from detectors.base import Tick
from streams.ticks import SourceTicks
from telemetry.records import Frame
from telemetry.settings import EngineSettings, TickSettings

RULES = EngineSettings(ticks=TickSettings(interval_s={"gpu": 10.0}))
TEMPERATURE, CLOCK = "gpu_temperature_celsius", "gpu_sm_clock_mhz"
MASK, REPLAYS = "gpu_throttle_reasons_mask", "gpu_pcie_replay_total"


def frame(tick: int, node: str, metrics: dict[str, list[float | None]]) -> Frame:
    return Frame(
        at=tick * 10.0 + 1.0, node=node, source="gpu", started_at=0.0, seq=tick,
        entities={"gpu": ["g0", "g1"]}, metrics=metrics,
    )  # fmt: skip


def closed(source: SourceTicks, *frames: Frame) -> Tick:
    for one in frames:
        source.take(one, one.at, one.at)
    return source.close(
        lambda names, _: (np.zeros(len(names), dtype=int), np.ones(len(names), dtype=bool))
    )


def test_only_what_frames_carry_costs_a_row() -> None:
    source = SourceTicks("gpu", 10.0, RULES, lambda _: True)
    tick = closed(source, frame(0, "a", {TEMPERATURE: [60.0, 70.0]}))
    assert [m.name for m in tick.metrics] == [TEMPERATURE]
    assert tick.worst[-1].tolist() == [[70.0]]


def test_a_new_metric_keeps_the_history_of_the_others() -> None:
    source = SourceTicks("gpu", 10.0, RULES, lambda _: True)
    closed(source, frame(0, "a", {CLOCK: [1700.0, 1690.0], REPLAYS: [5.0, 5.0]}))
    tick = closed(
        source,
        frame(1, "a", {CLOCK: [1710.0, 1600.0], REPLAYS: [5.0, 25.0], TEMPERATURE: [60.0, 61.0]}),
    )
    rows = {m.name: row for row, m in enumerate(tick.metrics)}
    assert list(rows) == [TEMPERATURE, CLOCK, REPLAYS]
    assert tick.worst[-2:, rows[CLOCK], 0].tolist() == [1690.0, 1600.0]
    assert np.isnan(tick.worst[-2, rows[TEMPERATURE], 0])
    assert tick.worst[-1, rows[TEMPERATURE], 0] == 61.0
    assert tick.worst[-1, rows[REPLAYS], 0] == 2.0  # 20 more in 10 s


def test_states_and_masks_are_watched_for_each_entity_and_never_compared() -> None:
    source = SourceTicks("gpu", 10.0, RULES, lambda _: True)
    tick = closed(
        source,
        frame(0, "a", {MASK: [0.0, 128.0], TEMPERATURE: [60.0, 61.0]}),
        frame(0, "b", {MASK: [None, 4.0], TEMPERATURE: [60.0, 61.0]}),
    )
    assert [m.name for m in tick.metrics] == [TEMPERATURE]
    assert [m.name for m in tick.watched_metrics] == [MASK]
    assert tick.watched.shape == (1, 2, 8)
    assert tick.watched[0, 0, :2].tolist() == [0.0, 128.0]
    assert np.isnan(tick.watched[0, 1, 0])
    assert tick.watched[0, 1, 1] == 4.0
    assert np.isnan(tick.watched[:, :, 2:]).all()
