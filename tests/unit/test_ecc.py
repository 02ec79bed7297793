"""Corrected memory errors by rate, beside the few that any memory has."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.base import Sighting
from detectors.ecc import METRIC, Ecc
from telemetry.settings import EngineSettings
from tests.fakes import cluster, tick

VIEW = cluster(4)


def fed(detector: Ecc, rates: list[float], first: float = 0.0) -> list[Sighting]:
    said: list[Sighting] = []
    for place, rate in enumerate(rates):
        one = tick(METRIC, np.array([[rate, 0.0]]), ["n00", "n01"], first + 15.0 * place, 15.0)
        said += detector.on_tick(one, VIEW, first)
    return said


def test_two_ticks_at_the_rate_are_a_fault_that_is_never_certain() -> None:
    (seen,) = fed(Ecc(EngineSettings()), [0.0, 4_600.0, 4_600.0, 4_600.0])

    assert ("fault", "gpu_memory", "hardware", False, "n00", 15.0) == (
        seen.role, seen.kind, seen.cause, seen.certain, seen.node, seen.onset_s,
    )  # fmt: skip
    assert (4_600.0, "errors/s") == (seen.observed, seen.unit)


@pytest.mark.parametrize("rates", [[0.0] * 9, [9.9] * 99, [50.0, 0.0] * 20, [np.nan] * 9])
def test_few_or_single_bursts_of_errors_say_nothing(rates: list[float]) -> None:
    assert [] == fed(Ecc(EngineSettings()), rates)


def test_d7_errors_that_come_with_the_load_while_scrapes_time_out_are_one_finding() -> None:
    """4,600 a second under load, every third scrape missing, a pause now and then."""
    rates = ([4_600.0, 4_600.0, np.nan] * 8 + [0.0] * 6) * 10
    assert [True] == [s.active for s in fed(Ecc(EngineSettings()), rates)]


def test_it_ends_ten_minutes_after_the_last_tick_at_the_rate() -> None:
    detector = Ecc(EngineSettings())
    fed(detector, [4_600.0] * 3)
    assert [] == fed(detector, [0.0] * 39, 45.0)
    assert [False] == [s.active for s in fed(detector, [0.0] * 3, 630.0)]
    assert {} == detector.snapshot()


def test_a_restart_of_ours_changes_nothing() -> None:
    rates = [0.0, 50.0, 50.0, *[0.0] * 50]
    straight, first, second = (Ecc(EngineSettings()) for _ in range(3))
    before = fed(first, rates[:2])
    second.restore(first.snapshot())
    assert fed(straight, rates) == [*before, *fed(second, rates[2:], 30.0)]
