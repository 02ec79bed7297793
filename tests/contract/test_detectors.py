"""What every registered detector promises; a new one is held to it by being registered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.base import Detector, Sighting, Tick
from detectors.registry import detectors
from telemetry.canary import canary
from telemetry.records import Event, Steps
from telemetry.settings import (
    AttemptsSettings,
    CriticalSettings,
    CurvesSettings,
    EngineSettings,
    IdleSettings,
    RobustPeersSettings,
    ShouldBeZeroSettings,
    SilenceSettings,
    StragglerSettings,
    TelemetryQualitySettings,
    TrainingSettings,
    ZscoreSettings,
)
from tests.fakes import FakeView, cluster, event, job_step, rank_steps, tick

# Short windows, so that short stories reach every state.
RULES = EngineSettings(
    zscore=ZscoreSettings(window_s=30.0, pooled=True),
    robust_peers=RobustPeersSettings(samples_min=1, counter_samples_min=1, covered_s=1.0),
    should_be_zero=ShouldBeZeroSettings(hold_s=20.0),
    telemetry_quality=TelemetryQualitySettings(gone_s=20.0, seen_samples=1, stuck_s=20.0),
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
CANARIES = st.builds(
    canary, st.integers(0, 3).map("{:016x}".format), st.floats(0.0, 90.0), st.just(0.0), st.just(0)
)
READINGS = st.lists(
    st.one_of(ticks(), EVENTS, CANARIES, STEPS, st.sampled_from(["", *NODES])), max_size=30
)


def named(name: str) -> Detector:
    return next(detector for detector in detectors(RULES) if detector.name == name)


def fed(
    detector: Detector, readings: Sequence[Reading], start: int = 0, stop: int | None = None,
    view: FakeView | None = None,
) -> list[list[Sighting]]:  # fmt: skip
    """What is said to readings[start:stop]; one comes every 7 s."""
    out: list[list[Sighting]] = []
    view = view or cluster(8)
    view.heard = {node: 0.0 for nodes in view.jobs.values() for node in nodes}
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
                assert key not in open_ or name in ("critical", "flap")
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


def renamed(reading: Reading) -> Reading:
    """The same of nodes whose names begin with another letter, so that their order stays."""
    if isinstance(reading, Tick):
        entities = {_new(node): names for node, names in reading.entities.items()}
        return replace(reading, nodes=tuple(map(_new, reading.nodes)), entities=entities)
    if isinstance(reading, str):
        return _new(reading)
    return msgspec.structs.replace(reading, node=_new(reading.node))


def _new(text: str) -> str:
    return re.sub(r"\bn(?=[0-9]{2}\b)", "x", text)


def _seen(said: list[list[Sighting]]) -> list[tuple[object, ...]]:
    return [
        (place, *(_new(value) if isinstance(value, str) else value for value in astuple(seen)))
        for place, some in enumerate(said)
        for seen in some
    ]


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS)
@settings(deadline=None, max_examples=20)
def test_renaming_the_nodes_renames_the_findings(name: str, readings: list[Reading]) -> None:
    other = FakeView(
        jobs={"j1": [_new(node) for node in NODES]}, leaves={"leaf0": [_new(n) for n in NODES]}
    )

    plain = fed(named(name), readings)
    under_other_names = fed(named(name), list(map(renamed, readings)), view=other)

    assert _seen(plain) == _seen(under_other_names)


def scaled(reading: Reading) -> Reading:
    """The same in a unit 1,024 times smaller; a power of two, so that no bit is lost."""
    if not isinstance(reading, Tick):
        return reading
    k = 1_024.0
    rows = tuple(
        msgspec.structs.replace(row, effect_min=k * row.effect_min) for row in reading.metrics
    )
    return replace(
        reading, metrics=rows, worst=k * reading.worst, mean=k * reading.mean, sd=k * reading.sd
    )


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS)
@settings(deadline=None, max_examples=20)
def test_another_unit_changes_no_verdict_and_no_score(name: str, readings: list[Reading]) -> None:
    def verdicts(said: list[list[Sighting]]) -> list[tuple[object, ...]]:
        return [
            (place, s.active, s.node, s.metric, s.entity, s.onset_s, s.score, s.role, s.kind)
            for place, some in enumerate(said)
            for s in some
        ]

    in_one = fed(named(name), readings)
    in_other = fed(named(name), list(map(scaled, readings)))

    assert verdicts(in_one) == verdicts(in_other)


@pytest.mark.parametrize("name", NAMES)
@given(readings=READINGS)
@settings(deadline=None, max_examples=20)
def test_a_late_frame_alone_says_nothing_of_others(name: str, readings: list[Reading]) -> None:
    """What comes late fills its node's own history, and alters nobody else's verdict."""
    late = [_alone(reading, "n07") for reading in readings if isinstance(reading, Tick)]
    detector, view = named(name), cluster(8)

    said = [seen for one in late for seen in detector.on_tick(one, view, one.at_s)]

    assert {seen.node for seen in said} <= {"n07"}


def _alone(reading: Tick, node: str) -> Tick:
    c = reading.nodes.index(node)
    only = slice(c, c + 1)
    return replace(
        reading, nodes=(node,), group=reading.group[only], worst=reading.worst[:, :, only],
        flags=reading.flags[:, :, only], mean=reading.mean[:, only], sd=reading.sd[:, only],
        entity=reading.entity[:, only], partial=True,
    )  # fmt: skip


SMALL = msgspec.structs.replace(
    RULES,
    critical=CriticalSettings(conditions_max=20),
    attempts=AttemptsSettings(jobs_max=4),
    idle=IdleSettings(jobs_max=4),
    straggler=msgspec.structs.replace(RULES.straggler, jobs_max=4),
    training=TrainingSettings(jobs_max=4),
    curves=CurvesSettings(jobs_max=4),
)


@pytest.mark.parametrize("name", NAMES)
def test_state_is_bounded_however_long_the_story(name: str) -> None:
    """What grows without end has grown between the second and the fourth part of it."""
    detector = next(one for one in detectors(SMALL) if one.name == name)
    view, random, sizes = cluster(8), np.random.default_rng(3), []
    view.heard = dict.fromkeys(NODES, 0.0)
    for round_ in range(400):
        now_s = 7.0 * round_
        values = np.where(random.random((3, 8)) < 0.5, 5e3, 0.0)
        one = tick(METRICS[round_ % 3], values, NODES, 10.0 * round_)
        detector.on_tick(replace(one, flags=np.full((3, 1, 8), 2, np.int8)), view, now_s)
        node, code = NODES[round_ % 8], (13, 45, 74, 79, 999)[round_ % 5]
        detector.on_event(event("xid", now_s, node, code=code, entity=f"gpu:{round_}"), view, now_s)
        for job in ("j1", f"job{round_}"):
            detector.on_steps(job_step(round_ + 1, now_s, 1.0 + round_ % 2, job), view, now_s)
        detector.on_steps(
            rank_steps(round_ + 1, now_s, node, {0: 1.0, 1: 2.0}, f"job{round_}"), view, now_s
        )
        detector.advance(now_s, view)
        if round_ % 100 == 99:
            sizes.append(len(msgspec.json.encode(detector.snapshot())))

    assert sizes[3] <= 1.25 * sizes[1] + 512, (name, sizes)


@pytest.mark.parametrize("name", NAMES)
def test_a_source_that_is_reset_goes_on(name: str) -> None:
    detector = named(name)
    one = tick(METRICS[0], np.full((3, 8), 5e3), NODES, 10.0)
    detector.on_tick(one, cluster(8), 10.0)
    detector.reset("nic")
    detector.reset("unknown")

    detector.on_tick(replace(one, at_s=20.0, index=2), cluster(8), 20.0)
