"""Ticks of a source that is read long after it was measured, as from a Prometheus in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.base import IntArray, Tick
from streams.ticks import SourceTicks
from streams.ticks_state import restore_source, source_state
from telemetry.records import Frame
from telemetry.settings import EngineSettings, TickSettings

INTERVAL_S, START_S = 15.0, 1_790_000_010.0  # a whole number of intervals
RULES = TickSettings(interval_s={"gpu": INTERVAL_S})
SETTINGS = EngineSettings(ticks=RULES)
Came = Callable[[float], float]
Closed = tuple[float, set[str], float]  # start of the tick, who had a value, how late it closed
METRIC = "gpu_temperature_celsius"


def in_pages(delay_s: float, poll_s: float) -> Came:
    """When a measurement is told: with the first page that ends behind it."""
    return lambda at_s: (at_s // poll_s + 1.0) * poll_s + delay_s


def at_once(at_s: float) -> float:
    return at_s + 0.2


def frame(node: str, at_s: float, *, spooled: bool = False) -> Frame:
    return Frame(
        at=at_s, node=node, source="gpu", started_at=1.0, seq=0, spooled=spooled,
        entities={"gpu": ["GPU-1"]}, metrics={METRIC: [50.0]},
    )  # fmt: skip


def ticks() -> SourceTicks:
    return SourceTicks("gpu", INTERVAL_S, SETTINGS, lambda _: True)


def one_group(names: Sequence[str], _at_s: float) -> tuple[IntArray, NDArray[np.bool_]]:
    return np.zeros(len(names), np.int64), np.ones(len(names), np.bool_)


def log(
    phases: dict[str, float], came: dict[str, Came], count: int
) -> Iterator[tuple[float, Frame]]:
    """(arrival, frame) of `count` intervals, in the order of their coming."""
    found = [
        (came[node](at_s), frame(node, at_s))
        for node, phase_s in phases.items()
        for at_s in (START_S + phase_s + i * INTERVAL_S for i in range(count))
    ]
    yield from sorted(found, key=lambda one: (one[0], one[1].at, one[1].node))


def closed(source: SourceTicks, arrivals: Iterator[tuple[float, Frame]]) -> list[Closed]:
    """The ticks as the fold closes them."""
    found: list[Closed] = []
    for now_s, one in arrivals:
        _close(source, now_s, found)
        source.take(one, one.at, now_s)
        _close(source, now_s, found)
    return found


def _close(source: SourceTicks, now_s: float, found: list[Closed]) -> None:
    while source.due_s() <= now_s:
        tick = source.close(one_group)
        # Later it would also show what late frames patched.
        found.append((tick.at_s, told(tick), now_s - tick.at_s - INTERVAL_S))


def told(tick: Tick) -> set[str]:
    """Who has a value in it."""
    return {n for n, v in zip(tick.nodes, tick.worst[-1, 0], strict=True) if not np.isnan(v)}


def spread(nodes: int) -> dict[str, float]:
    return {f"n{i:03d}": (i + 0.5) * INTERVAL_S / nodes for i in range(nodes)}


@pytest.mark.parametrize("nodes", [4, 6, 12, 60])
@pytest.mark.parametrize("poll_s", [5.0, 5.06, 7.0, 10.0])
def test_who_is_scraped_last_is_in_time_too(nodes: int, poll_s: float) -> None:
    phases = spread(nodes)
    came = dict.fromkeys(phases, in_pages(10.0, poll_s))
    found = closed(ticks(), log(phases, came, 60))
    # Of the first ticks nobody knows how long it takes.
    assert [set(phases)] * len(found[3:]) == [who for _, who, _ in found[3:]]
    assert max(late_s for *_, late_s in found[3:]) <= 10.0 + poll_s + 0.1


def test_who_died_is_waited_for_no_longer_than_its_page_usually_takes() -> None:
    phases = spread(12)
    came = dict.fromkeys(phases, in_pages(10.0, 5.0))
    dead_s = START_S + 20 * INTERVAL_S
    arrivals = (a for a in log(phases, came, 40) if a[1].node != "n003" or a[1].at < dead_s)
    after = [late_s for at_s, _, late_s in closed(ticks(), arrivals) if at_s >= dead_s]
    assert max(after) < 25.0 < RULES.lateness_intervals * INTERVAL_S


def test_a_few_that_are_slow_by_themselves_delay_nobody() -> None:
    phases = spread(12)
    came = {**dict.fromkeys(phases, at_once), "n003": in_pages(20.0, 5.0)}
    found = closed(ticks(), log(phases, came, 40))
    # The last ticks close when the slow one's frames come, for nothing else does.
    assert max(late_s for *_, late_s in found[3:-2]) < 2.0 * RULES.settle_s


def test_nodes_with_an_agent_beside_nodes_without_are_all_in_time() -> None:
    phases = spread(12)
    came = {n: in_pages(10.0, 5.0) if i % 3 else at_once for i, n in enumerate(phases)}
    found = closed(ticks(), log(phases, came, 40))
    assert [set(phases)] * len(found[3:]) == [who for _, who, _ in found[3:]]


def test_what_an_agent_kept_on_disk_tells_nothing_of_the_usual_delay() -> None:
    source = ticks()
    for node in spread(6):
        source.take(frame(node, START_S, spooled=True), START_S, START_S + 600.0)
    assert [0.0] * 6 == [pair.took_s for pair in source.pairs]


def test_a_snapshot_knows_how_long_it_usually_takes() -> None:
    phases = spread(6)
    came = dict.fromkeys(phases, in_pages(10.0, 5.0))
    source, other = ticks(), ticks()
    closed(source, log(phases, came, 10))
    restore_source(other, source_state(source))
    assert source.few_wait_s == other.few_wait_s > RULES.settle_s
    assert [p.took_s for p in source.pairs] == [p.took_s for p in other.pairs]
