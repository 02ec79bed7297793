"""What every registered detector promises; a new one is held to it by being registered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.base import Detector, Sighting, Tick
from detectors.registry import detectors
from telemetry.records import Event, Steps
from telemetry.settings import EngineSettings, SilenceSettings, StragglerSettings, ZscoreSettings
from tests.fakes import FakeView, cluster, event, job_step, rank_steps, tick

# Short windows, so that short stories reach every state.
RULES = EngineSettings(
    zscore=ZscoreSettings(window_s=30.0, pooled=True),
    straggler=StragglerSettings(
        warmup_steps=1, baseline_min_steps=2, recent_steps=3, recent_slow_steps=2, clear_steps=2,
        rank_min_steps=2,
    ),
    silence=SilenceSettings(patience_s=10.0),
)  # fmt: skip
NAMES = [detector.name for detector in detectors(RULES)]
NODES = [f"n{i:02d}" for i in range(8)]
METRICS = ["nic_ecn_marked_packets_total", "nic_link_downed_total", "gpu_temperature_celsius"]

Reading = Tick | Event | Steps | str  # a str is a node that was heard, "" nobody


@st.composite
def ticks(draw: st.DrawFn) -> Tick:
    values = draw(st.lists(st.sampled_from([0.0, 1.0, 5e3, np.nan]), min_size=24, max_size=24))
    one = tick(draw(st.sampled_from(METRICS)), np.array(values).reshape(3, 8), NODES,
               10.0 * draw(st.integers(1, 9)), partial=False)  # fmt: skip
    flags = np.array(draw(st.lists(st.sampled_from([1, 2]), min_size=24, max_size=24)))
    seen = np.where(np.isnan(one.worst), 0, flags.reshape(3, 1, 8)).astype(np.int8)
    return replace(one, flags=seen, mean=np.zeros((1, 8)), sd=np.ones((1, 8)))


EVENTS = st.builds(
    event,
    st.sampled_from(["xid", "process", "nic", "thermal", "gpu_lost"]),
    st.floats(0.0, 90.0),
    st.sampled_from(NODES),
    severity=st.sampled_from(["critical", "warning", "info"]),
    code=st.sampled_from([None, 13, 45, 74, 79, 999]),
    class_=st.sampled_from(["", "user_code", "nccl", "link_down"]),
)
STEPS = st.one_of(
    st.builds(job_step, st.integers(1, 20), st.floats(0.0, 90.0),
              st.sampled_from([None, 1.0, 1.0, 1.0, 2.0]),
              nonfinite=st.sampled_from([[], ["loss"]])),
    st.builds(rank_steps, st.integers(1, 20), st.floats(0.0, 90.0), st.sampled_from(NODES),
              st.dictionaries(st.integers(0, 5), st.sampled_from([None, 1.0, 2.0]), max_size=6)),
)  # fmt: skip
READINGS = st.lists(st.one_of(ticks(), EVENTS, STEPS, st.sampled_from(["", *NODES])), max_size=30)


def named(name: str) -> Detector:
    return next(detector for detector in detectors(RULES) if detector.name == name)


def fed(
    detector: Detector, readings: Sequence[Reading], start: int = 0, stop: int | None = None
) -> list[list[Sighting]]:
    """What is said to readings[start:stop]; one comes every 7 s."""
    out: list[list[Sighting]] = []
    view = cluster(8)
    view.heard = dict.fromkeys(NODES, 0.0)
    for place, reading in enumerate(readings[:stop]):
        now_s = 7.0 * place
        if isinstance(reading, str) and reading:
            view.heard[reading] = now_s
        if place >= start:
            said = _one(detector, reading, view, now_s)
            out.append([*said, *detector.advance(now_s, view)])
    return out


def _one(detector: Detector, reading: Reading, view: FakeView, now_s: float) -> Sequence[Sighting]:
    if isinstance(reading, Tick):
        return detector.on_tick(reading, view, now_s)
    if isinstance(reading, Event):
        return detector.on_event(reading, view, now_s)
    if isinstance(reading, Steps):
        return detector.on_steps(reading, view, now_s)
    return ()


def test_the_order_is_fixed_and_a_disabled_one_is_left_out() -> None:
    without = msgspec.structs.replace(RULES, silence=SilenceSettings(enabled=False))

    assert len(set(NAMES)) == len(NAMES) >= 6
    assert [name for name in NAMES if name != "silence"] == [d.name for d in detectors(without)]


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS)
@settings(deadline=None, max_examples=20)
def test_the_same_readings_twice_say_the_same_and_stay_as_they_were(
    name: str, readings: list[Reading]
) -> None:
    before = [r.worst.copy() for r in readings if isinstance(r, Tick)]

    assert fed(named(name), readings) == fed(named(name), readings)

    after = [r.worst for r in readings if isinstance(r, Tick)]
    for was, now in zip(before, after, strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS, cut=st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_a_restart_changes_nothing(name: str, readings: list[Reading], cut: int) -> None:
    """Stopping after any reading and resuming from the bytes of the snapshot says the same."""
    first, second, whole = named(name), named(name), named(name)

    before = fed(first, readings, 0, cut)
    state = first.snapshot()
    second.restore(json.loads(msgspec.json.encode(state)) if state is not None else None)

    assert fed(whole, readings) == [*before, *fed(second, readings, cut)]
    assert msgspec.json.encode(whole.snapshot()) == msgspec.json.encode(second.snapshot())


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS)
@settings(deadline=None, max_examples=20)
def test_what_is_cleared_was_said_and_nothing_is_said_twice_without_news(
    name: str, readings: list[Reading]
) -> None:
    open_: dict[tuple[str, ...], Sighting] = {}
    for said in fed(named(name), readings):
        for seen in said:
            key = (seen.detector, seen.node, seen.entity, seen.metric, seen.job)
            if not seen.active:
                assert key in open_
                del open_[key]
            else:
                assert key not in open_ or name == "critical"
                open_[key] = seen


@pytest.mark.parametrize("name", NAMES)
def test_a_quiet_hour_finds_nothing(name: str) -> None:
    detector, noise = named(name), np.random.default_rng(7)
    view = cluster(8)
    said: list[Sighting] = []
    for minute in range(60):
        now_s = 60.0 * minute
        for beat in range(12):
            view.heard = dict.fromkeys(NODES, now_s + 5.0 * beat)
            said += detector.advance(now_s + 5.0 * beat, view)
        for metric, level in (("nic_ecn_marked_packets_total", 0.0),
                              ("gpu_temperature_celsius", 60.0)):  # fmt: skip
            values = level + level / 60.0 * noise.random((3, 8))
            one = tick(metric, values, NODES, now_s)
            calm = replace(one, flags=np.ones_like(one.flags))
            said += detector.on_tick(calm, view, now_s)
        step_time_s = 5.0 + 0.1 * float(noise.random())
        said += detector.on_steps(job_step(minute + 1, now_s, step_time_s), view, now_s)

    assert [] == said
