"""The engine's array kernels over raw samples, beside pandas doing the same. Printed only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.base import FlagArray, FloatArray, IntArray
from detectors.kernels import (
    ABNORMAL,
    MISSING,
    NORMAL,
    beyond,
    counter_rates,
    group_moments,
    run_of_abnormal,
    worst_entity,
)
from tests.bench.pandas_rule import abnormal
from tests.bench.rates import cpu_s, show

NODES, METRICS, ENTITIES, GROUPS = 512, 40, 8, 4
TICKS, WINDOW, INTERVAL_S, COVERAGE = 44, 40, 15.0, 0.6
COUNTERS = METRICS // 2
HIGH = np.arange(METRICS) % 4 != 3  # every fourth metric is bad when low

pytestmark = pytest.mark.bench


@dataclass(frozen=True, slots=True)
class Load:
    """raw: (ticks, nodes, metrics, entities); the first half of the metrics are counters."""

    raw: FloatArray
    group: IntArray

    @property
    def samples(self) -> int:
        """How many raw values there are."""
        return self.raw.size


def load() -> Load:
    """Noise, one value in a thousand missing, three nodes apart from the others; seed 1."""
    rng = np.random.default_rng(1)
    raw = rng.normal(100.0, 5.0, (TICKS, NODES, METRICS, ENTITIES))
    raw[:, [7, 99, 300]] += np.where(HIGH, 60.0, -60.0)[None, None, :, None]
    raw[:, :, :COUNTERS] = np.cumsum(np.abs(raw[:, :, :COUNTERS]), axis=0)
    raw[rng.random(raw.shape) < 0.001] = np.nan
    return Load(raw, np.sort(np.arange(NODES) % GROUPS))


def kernels(given: Load) -> tuple[FlagArray, list[NDArray[np.bool_]]]:
    """Tick by tick as the engine does it: flags of all ticks, and who is abnormal at each."""
    flags = np.zeros((TICKS, METRICS, NODES), dtype=np.int8)
    found = []
    wrap_at = np.full(COUNTERS, 2.0**64)
    elapsed_s = np.full(NODES, INTERVAL_S)
    scale = np.full(METRICS, 1e-9)
    before = np.full_like(given.raw[0, :, :COUNTERS], np.nan)
    for tick, raw in enumerate(given.raw):
        judged = raw.copy()
        judged[:, :COUNTERS] = counter_rates(raw[:, :COUNTERS], before, elapsed_s, wrap_at)
        before = raw[:, :COUNTERS]
        worst, _ = worst_entity(judged, HIGH)
        mean, sd, _ = group_moments(worst, given.group, GROUPS, 6)
        over = beyond(worst, mean[:, given.group], sd[:, given.group], 2.0, HIGH, scale)
        flags[tick] = np.where(np.isnan(worst), MISSING, np.where(over, ABNORMAL, NORMAL))
        found.append(run_of_abnormal(flags[: tick + 1], WINDOW, COVERAGE))
    return flags, found


def with_pandas(given: Load) -> FloatArray:
    """Shape (metrics, ticks, nodes), 1.0 where abnormal."""
    return np.array(
        [
            abnormal(
                given.raw[:, :, metric], given.group, counter=metric < COUNTERS,
                high=bool(HIGH[metric]), interval_s=INTERVAL_S, ticks=WINDOW, coverage=COVERAGE,
            ).to_numpy(dtype=np.float64)
            for metric in range(METRICS)
        ]
    )  # fmt: skip


def test_array_speed() -> None:
    given = load()
    print(f"\n{NODES} nodes x {METRICS} metrics x {ENTITIES} entities, {TICKS} ticks")
    pandas_s = cpu_s(lambda: with_pandas(given), rounds=1)
    show("the rule in pandas", given.samples, pandas_s)
    show("all kernels, tick by tick", given.samples, cpu_s(lambda: kernels(given)), pandas_s)
    one_by_one(given)

    _, found = kernels(given)
    reference = with_pandas(given).transpose(1, 0, 2)
    whole = slice(WINDOW, None)  # the first rate of a counter comes with the second tick
    assert np.array_equal(np.array(found[whole]), reference[whole] == 1.0)
    assert found[-1].sum() >= 3 * METRICS - 6


def one_by_one(given: Load) -> None:
    """Each kernel alone; samples are raw ones, also where a kernel reads the worst entities."""
    raw, before = given.raw[-1], given.raw[-2]
    flags, _ = kernels(given)
    worst, _ = worst_entity(raw, HIGH)
    mean, sd, _ = group_moments(worst, given.group, GROUPS, 6)
    node_mean, node_sd = mean[:, given.group], sd[:, given.group]
    counters, elapsed_s = slice(0, COUNTERS), np.full(NODES, INTERVAL_S)
    wrap_at, scale = np.full(COUNTERS, 2.0**64), np.full(METRICS, 1e-9)
    alone: dict[str, Callable[[], object]] = {
        "counter_rates": lambda: counter_rates(
            raw[:, counters], before[:, counters], elapsed_s, wrap_at
        ),
        "worst_entity": lambda: worst_entity(raw, HIGH),
        "group_moments": lambda: group_moments(worst, given.group, GROUPS, 6),
        "beyond": lambda: beyond(worst, node_mean, node_sd, 2.0, HIGH, scale),
        "run_of_abnormal": lambda: run_of_abnormal(flags, WINDOW, COVERAGE),
    }
    for name, work in alone.items():
        show(f"  {name}", raw.size, cpu_s(work, times=20))
