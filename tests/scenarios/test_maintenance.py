"""Maintenance, from the words of Slurm and Alertmanager to what becomes of a fault in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
import pytest

from actions.rails import decide, recheck, tells
from actions.site import Site as Facts
from actions.site import sizes_of
from collectors.inventory.reservations import of_nodes, read_text
from collectors.inventory.silences import read_silences, windows_of
from telemetry.actions import Command, Decision, Where, Window
from telemetry.findings import Incident
from telemetry.settings import ActSettings, RailSettings, SilencesSettings
from tests.acting import Site
from tests.folding import fresh, simulated
from tests.unit.test_silences import silence

FAULTY = "n003"
Words = Callable[[float, float], list[Window]]
NODES = [f"n{number:03}" for number in range(8)]
RESERVED = (
    "ReservationName=firmware StartTime={since} EndTime={until}\n"
    "   Nodes=n[002-003] Flags=MAINT\n\n"
)


@lru_cache(maxsize=1)
def told() -> tuple[tuple[float, Incident], ...]:
    """A GPU falls off the bus; each revision of each incident, and each repetition."""
    fold, said = fresh(), []
    for arrived in simulated(8, 28.0, (f"xid79@{FAULTY}+300",)):
        said += [(fold.now, one) for one in fold.step(arrived).incidents]
    return tuple(said)


class Pager:
    """A Teller that remembers what people were told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def take(self, incident: Incident, decision: Decision | None = None) -> None:
        if decision is not None:
            self.told.append((incident.id, decision.state))

    def acknowledge(self, incident: str, by: str) -> int:
        return 0

    def changed(self, change_id: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        """Nothing."""

    def save(self) -> None:
        """Nothing."""


def lived(windows: Sequence[Window], verdict_max_s: float = 3_600.0) -> tuple[Site, Pager]:
    """The action service over all of it, while these windows are known."""
    rails = RailSettings(mode_default="auto", cooldown_s=0.0, verdict_max_s=verdict_max_s)
    site = Site(ActSettings(rails=rails, first_observe_s=0.0), decide)
    pager = Pager()
    site.recheck, site.tells, site.teller = recheck, tells, pager
    site.clock.set(told()[0][0] - 1.0)
    site.facts = facts(site.clock.time_s(), windows)
    instance = site.start()
    for now_s, incident in told():
        site.clock.set(now_s)
        site.facts = facts(now_s, windows)
        site.tell(incident)
        instance.step(2)
    return site, pager


def facts(now_s: float, windows: Sequence[Window]) -> Facts:
    places = {node: Where("r1", "l1", "p1", "train-1") for node in NODES}
    return Facts(
        places=places, sizes=sizes_of(places), windows=list(windows), nodes=8, blind_nodes=0,
        telemetry_at=now_s, measured_at=now_s, listing_at=now_s,
    )  # fmt: skip


def stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def reservation(since_s: float, until_s: float) -> list[Window]:
    """As Slurm says it."""
    text = RESERVED.format(since=stamp(since_s), until=stamp(until_s))
    found = of_nodes(read_text(text, "scontrol"), NODES)
    return [Window(one.name, one.since, one.until, one.nodes) for one in found]


def silenced(since_s: float, until_s: float) -> list[Window]:
    """As Alertmanager says it."""
    row = silence('instance=~"n003:.*"', startsAt=f"{stamp(since_s)}Z", endsAt=f"{stamp(until_s)}Z")
    found = read_silences(msgspec.json.encode([row]), "alertmanager")
    return [
        Window(one.name, one.since, one.until, one.nodes)
        for one in windows_of(found, dict.fromkeys(NODES, ()), "main", SilencesSettings())
    ]


def of_the_fault(site: Site) -> list[Decision]:
    found = [one for one in site.of(Decision) if isinstance(one, Decision)]
    return [one for one in found if FAULTY in one.verdict.targets]


def commands(site: Site) -> list[Command]:
    return [one for one in site.of(Command) if isinstance(one, Command)]


def test_without_a_window_the_node_is_isolated_and_people_are_told() -> None:
    site, pager = lived([])

    assert [FAULTY] == commands(site)[0].targets
    assert site.world.done
    assert pager.told


@pytest.mark.parametrize("words", [reservation, silenced])
def test_in_the_window_it_is_decided_and_recorded_and_after_it_decided_again(
    words: Words,
) -> None:
    """The fault comes 5 min in; the window is open until 14 min; it is said again every 10 min."""
    began_s = simulated(8, 28.0, (f"xid79@{FAULTY}+300",))[0].arrival
    until_s = began_s + 840.0
    site, pager = lived(words(began_s - 60.0, until_s))

    decisions = of_the_fault(site)
    within = [one for one in decisions if one.at < until_s]
    after = [one for one in decisions if one.at >= until_s]
    assert {"refused"} == {one.state for one in within}
    assert any("maintenance window" in one.reason for one in within)
    assert "approved" == after[0].state
    assert within[0].id == after[0].id
    assert within[0].verdict == after[0].verdict
    done = commands(site)
    assert [FAULTY] == done[0].targets
    assert min(one.intent_at for one in done) >= until_s
    assert {"refused"}.isdisjoint(state for _, state in pager.told)


@pytest.mark.parametrize("words", [reservation, silenced])
def test_in_a_window_that_stays_open_nobody_is_told_and_nothing_is_done(words: Words) -> None:
    began_s = told()[0][0]
    site, pager = lived(words(began_s - 60.0, began_s + 86_400.0))

    assert {"refused"} == {one.state for one in of_the_fault(site)}
    assert [] == site.of(Command)
    assert [] == site.world.done
    assert [] == pager.told


def test_what_is_too_old_to_act_on_after_a_long_window_is_told_to_people() -> None:
    began_s = simulated(8, 28.0, (f"xid79@{FAULTY}+300",))[0].arrival
    until_s = began_s + 840.0
    site, pager = lived(reservation(began_s - 60.0, until_s), verdict_max_s=300.0)

    last = of_the_fault(site)[-1]
    assert last.at >= until_s
    assert "refused" == last.state
    assert {"fresh verdict"} == {rail.name for rail in last.rails if not rail.passed}
    assert [] == site.of(Command)
    assert {(last.incident, "refused")} == set(pager.told)
