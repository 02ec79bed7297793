"""When a condition began, how exactly that is known, and which slowdown it can explain."""

from __future__ import annotations

import random

import numpy as np
import pytest

from detectors.base import Sighting
from detectors.onsets import tick_onset, turning_point
from detectors.story import began_together
from telemetry.findings import Finding
from telemetry.settings import CorrelationSettings
from tests.fakes import Book, tick

NODES = ["n00", "n01"]
ECN = "nic_ecn_marked_packets_total"
NAN = float("nan")


def found(onset_s: float, resolution_s: float, events: int = 1, at_s: float = 0.0) -> Finding:
    seen = Sighting(
        True, "test", "n00", "", "metric", onset_s, events=events, onset_resolution_s=resolution_s
    )
    return Book().say(seen, at_s or onset_s)


def test_the_resolution_is_the_interval_and_what_was_missed_before() -> None:
    values = np.array([[0.0, 0.0], [0.0, NAN], [9.0, 9.0], [9.0, 9.0]])
    now = tick(ECN, values, NODES, at_s=630.0, interval_s=10.0)
    assert tick_onset(now, 0, 0, 1) == (620.0, 10.0)
    assert tick_onset(now, 0, 1, 1) == (620.0, 20.0)


def test_an_onset_before_the_window_is_as_exact_as_a_tick() -> None:
    now = tick(ECN, np.full((2, 2), 9.0), NODES, at_s=630.0, interval_s=10.0)
    assert tick_onset(now, 0, 0, 7) == (560.0, 10.0)


def test_the_turning_point_leaves_the_noise_before_a_shift_out() -> None:
    assert turning_point(np.array([0.4, 0.2, 5.0, 6.0, 5.5])) == 2
    assert turning_point(np.array([5.0])) == 0
    assert turning_point(np.array([0.1, NAN, 5.0, NAN, 5.0, 5.0])) == 2


@pytest.mark.parametrize("seed", range(20))
def test_the_turning_point_is_near_where_the_shift_is(seed: int) -> None:
    rng = random.Random(seed)
    before, after = rng.randrange(1, 8), rng.randrange(3, 12)
    values = [rng.gauss(0.0, 1.0) for _ in range(before)]
    values += [rng.gauss(6.0, 1.0) for _ in range(after)]
    assert abs(turning_point(np.array(values)) - before) <= 1


@pytest.mark.parametrize(
    ("apart_s", "resolution_s", "explains"),
    [
        (20.0, 10.0, True), (-20.0, 10.0, True), (60.0, 10.0, False), (-60.0, 10.0, False),
        (70.0, 60.0, True), (-70.0, 60.0, True), (120.0, 60.0, False), (-120.0, 60.0, False),
        (200.0, 0.0, True), (-260.0, 0.0, False),
    ],
)  # fmt: skip
def test_a_cause_begins_with_its_slowdown_as_exactly_as_both_are_known(
    apart_s: float, resolution_s: float, explains: bool
) -> None:
    """Neither what came later, nor what the job ran well with; 0: nobody knows how exactly."""
    slow, other = found(1_000.0, 6.0), found(1_000.0 + apart_s, resolution_s)
    assert began_together(slow, other, CorrelationSettings()) is explains


def test_a_slowdown_that_climbed_began_somewhere_on_the_way() -> None:
    other = found(1_100.0, 10.0)
    assert not began_together(found(1_000.0, 6.0), other, CorrelationSettings())
    assert began_together(found(1_000.0, 106.0), other, CorrelationSettings())


def test_what_happened_again_explains_a_slowdown_between_its_times() -> None:
    rules, slow = CorrelationSettings(), found(1_000.0, 6.0)
    assert not began_together(slow, found(800.0, 5.0), rules)
    assert began_together(slow, found(800.0, 5.0, events=2, at_s=990.0), rules)
    assert not began_together(slow, found(800.0, 5.0, events=2, at_s=900.0), rules)
