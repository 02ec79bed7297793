"""The published rule against a naive pandas reading of its definition, on random input.

The oracle works on a table of (tick, node) -> value with plain loops over windows, from the words
of the definition and nothing of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.base import Sighting, Tick
from detectors.zscore import Zscore
from streams.inventory import Inventory
from streams.ticks import GroupOf, SourceTicks
from telemetry.metrics import BY_NAME
from telemetry.records import Frame
from telemetry.settings import EngineSettings, TickSettings, ZscoreSettings

INTERVAL_S = 60.0
SHORT_S = 600.0
HIGH, LOW = "gpu_temperature_celsius", "gpu_sm_clock_mhz"
SCALE = {name: BY_NAME[name].effect_min for name in (HIGH, LOW)}


@dataclass(frozen=True)
class Case:
    """values: (ticks, nodes), NaN where the node's value is null, None rows where it is silent."""

    values: np.ndarray
    silent: np.ndarray
    group: np.ndarray


def table(seed: int) -> Case:
    """A table drawn evenly from all kinds: hypothesis picks the seed, so that rare ones come."""
    random = np.random.default_rng(seed)
    nodes = int(random.choice([5, 6, 7, 9, 12, 16, 20]))
    ticks = int(random.integers(9, 21))
    shape = str(random.choice(["constant", "ties", "noise", "two_levels"]))
    base = {
        "constant": np.full((ticks, nodes), 60.0),
        "ties": random.integers(58, 62, (ticks, nodes)).astype(float),
        "noise": 60.0 + random.normal(0.0, 1.0, (ticks, nodes)),
        "two_levels": np.where(random.random((ticks, nodes)) < 0.5, 60.0, 60.1),
    }[shape]
    for node in range(int(random.choice([0, 1, 1, 1, 2]))):
        start = int(random.integers(0, 5))
        stop = ticks - int(random.choice([0, 0, 3]))
        base[start:stop, node] += float(random.choice([20.0, 20.0, -20.0, -20.0, 3.0, 1e-9]))
    base[random.random((ticks, nodes)) < float(random.choice([0.0, 0.0, 0.0, 0.02, 0.2]))] = np.nan
    silent = random.random((ticks, nodes)) < float(random.choice([0.0, 0.0, 0.0, 0.02, 0.2]))
    return Case(base, silent, np.arange(nodes) % int(random.choice([1, 1, 2])))


cases = st.integers(0, 2**32 - 1).map(table)


def engine_settings(pooled: bool) -> EngineSettings:
    return EngineSettings(
        ticks=TickSettings(interval_s={"gpu": INTERVAL_S}),
        zscore=ZscoreSettings(pooled=pooled, window_s=SHORT_S),
    )


def ours(case: Case, metric: str, pooled: bool) -> list[set[str]]:
    """Per closed tick the nodes that the detector holds abnormal."""
    rules = engine_settings(pooled)
    source = SourceTicks("gpu", INTERVAL_S, rules, lambda _: True)
    detector = Zscore(rules)
    names = [f"n{i:02d}" for i in range(case.values.shape[1])]
    state: set[str] = set()
    told: list[set[str]] = []
    for tick in range(case.values.shape[0]):
        for i, name in enumerate(names):
            if not case.silent[tick, i]:
                value = float(case.values[tick, i])
                frame = Frame(
                    at=tick * INTERVAL_S + i, node=name, source="gpu", started_at=0.0, seq=tick,
                    entities={"gpu": ["g0"]},
                    metrics={metric: [None if math.isnan(value) else value]},
                )  # fmt: skip
                assert source.take(frame, frame.at, frame.at) == (True, None)
        if source.open:
            closed = source.close(
                lambda asked, _: (
                    np.array([case.group[int(name[1:])] for name in asked]),
                    np.ones(len(asked), dtype=np.bool_),
                )
            )
            for seen in said(detector, closed, "zscore_pooled" if pooled else "zscore"):
                (state.add if seen.active else state.discard)(seen.node)
        told.append(set(state))
    return told


def said(detector: Zscore, tick: Tick, name: str) -> list[Sighting]:
    found = detector.on_tick(tick, Inventory(), tick.at_s)
    return [seen for seen in found if seen.detector == name and seen.node]


def beyond(x: Any, mean: Any, sd: Any, metric: str) -> bool:
    sign = 1.0 if BY_NAME[metric].bad == "high" else -1.0
    bound = mean + sign * 2.0 * sd
    return bool(sign * (x - bound) > 1e-9 * max(abs(bound), SCALE[metric]))


def oracle(case: Case, metric: str, pooled: bool) -> list[set[str]]:
    values = pd.DataFrame(case.values).mask(pd.DataFrame(case.silent))
    window = round(SHORT_S / INTERVAL_S)
    state: set[str] = set()
    told: list[set[str]] = []
    for tick in range(len(values)):
        for node in values.columns:
            if is_nan(values.loc[tick, node]):
                continue  # nothing new is known of this node
            rule = naive_pooled if pooled else naive_per_tick
            verdict = rule(values, case.group, tick, int(node), window, metric)
            name = f"n{node:02d}"
            if verdict is True:
                state.add(name)
            elif verdict is False:
                state.discard(name)
        told.append(set(state))
    return told


def is_nan(value: Any) -> bool:
    return bool(pd.isna(value))


def mates(values: pd.DataFrame, group: np.ndarray, node: int) -> pd.DataFrame:
    return values.loc[:, [n for n in values.columns if group[n] == group[node]]]


def naive_per_tick(
    values: pd.DataFrame, group: np.ndarray, tick: int, node: int, window: int, metric: str
) -> bool | None:
    """True beyond for the whole window, False normal at this tick, None nothing to say."""
    peers = mates(values, group, node)
    samples, beyond_all, now = 0, True, None
    for k in range(max(0, tick - window + 1), tick + 1):
        row = peers.loc[k].dropna()
        if len(row) < 6 or is_nan(values.loc[k, node]):
            continue  # a tick with fewer than six counts as missing for all
        samples += 1
        over = beyond(values.loc[k, node], row.mean(), row.std(ddof=0), metric)
        beyond_all &= over
        now = over if k == tick else now
    if now is None:
        return None
    if now and beyond_all and samples >= 0.9 * window:
        return True
    return False if not now else None


def naive_pooled(
    values: pd.DataFrame, group: np.ndarray, tick: int, node: int, window: int, metric: str
) -> bool | None:
    peers = mates(values, group, node)
    span = peers.loc[max(0, tick - window + 1) : tick]
    if peers.shape[1] < 6:
        return None
    everything = span.stack()
    mine = span[node].dropna()
    judged = any(
        len(peers.loc[k].dropna()) >= 6 and not is_nan(values.loc[k, node]) for k in span.index
    )
    mean, sd = everything.mean(), everything.std(ddof=0)
    every = all(beyond(x, mean, sd, metric) for x in mine)
    if judged and every and len(mine) >= 0.9 * window:
        return True
    if not judged:
        return None
    return False if not beyond(values.loc[tick, node], mean, sd, metric) else None


@settings(max_examples=60, deadline=None)
@given(case=cases, metric=st.sampled_from([HIGH, LOW]))
def test_per_tick_agrees_with_the_definition(case: Case, metric: str) -> None:
    assert ours(case, metric, pooled=False) == oracle(case, metric, pooled=False)


@settings(max_examples=60, deadline=None)
@given(case=cases, metric=st.sampled_from([HIGH, LOW]))
def test_pooled_agrees_with_the_definition(case: Case, metric: str) -> None:
    assert ours(case, metric, pooled=True) == oracle(case, metric, pooled=True)


def hot(nodes: int, ticks: int = 12, sick: int = 1) -> Case:
    """Everybody at 60, the first `sick` nodes at 80."""
    values = np.full((ticks, nodes), 60.0)
    values[:, :sick] = 80.0
    return Case(values, np.zeros((ticks, nodes), dtype=bool), np.zeros(nodes, dtype=int))


def test_one_hot_node_of_six_is_found_and_of_five_is_not() -> None:
    """√(n-1) population sigmas is the most that one outlier can reach: 2 at n = 5."""
    assert ours(hot(6), HIGH, pooled=False)[-1] == {"n00"}
    assert ours(hot(5), HIGH, pooled=False)[-1] == set()


def test_a_fifth_of_the_group_equally_bad_is_not_seen() -> None:
    """√((n-k)/k): the published rule is blind from 20 % on."""
    assert ours(hot(20, sick=3), HIGH, pooled=False)[-1] == {"n00", "n01", "n02"}
    assert ours(hot(20, sick=4), HIGH, pooled=False)[-1] == set()


def test_constant_values_are_no_outliers() -> None:
    assert ours(hot(8, sick=0), HIGH, pooled=False)[-1] == set()
    assert ours(hot(8, sick=0), HIGH, pooled=True)[-1] == set()


def test_a_group_below_six_says_group_too_small_once() -> None:
    rules = engine_settings(pooled=False)
    source, detector = SourceTicks("gpu", INTERVAL_S, rules, lambda _: True), Zscore(rules)
    texts: list[str] = []
    for tick in range(12):
        for name in ("a", "b", "c", "d", "e"):
            frame = Frame(
                at=tick * INTERVAL_S, node=name, source="gpu", started_at=0.0, seq=tick,
                entities={"gpu": ["g0"]}, metrics={HIGH: [60.0]},
            )  # fmt: skip
            source.take(frame, frame.at, frame.at)
        closed = source.close(at_places(np.zeros(5, dtype=int)))
        texts += [seen.text for seen in detector.on_tick(closed, Inventory(), closed.at_s)]
    assert len(texts) == 1
    assert texts[0].startswith("group too small: 5 nodes")


def at_places(group: np.ndarray) -> GroupOf:
    """Everybody is employed, in these groups."""
    return lambda asked, _: (group, np.ones(len(asked), dtype=np.bool_))


def test_a_node_that_changes_its_group_begins_anew() -> None:
    case = hot(14, ticks=20)
    rules = engine_settings(pooled=False)
    source, detector = SourceTicks("gpu", INTERVAL_S, rules, lambda _: True), Zscore(rules)
    names = [f"n{i:02d}" for i in range(14)]
    active_at: list[int] = []
    for tick in range(20):
        for i, name in enumerate(names):
            frame = Frame(
                at=tick * INTERVAL_S, node=name, source="gpu", started_at=0.0, seq=tick,
                entities={"gpu": ["g0"]}, metrics={HIGH: [float(case.values[tick, i])]},
            )  # fmt: skip
            source.take(frame, frame.at, frame.at)
        moved = np.array([1 if i >= 7 or (i == 0 and tick >= 3) else 0 for i in range(14)])
        closed = source.close(at_places(moved))
        if any(seen.active and seen.node == "n00" for seen in detector.on_tick(
            closed, Inventory(), closed.at_s)):  # fmt: skip
            active_at.append(tick)
    assert active_at == [11]  # nine of ten ticks in the new group, from 3 on
