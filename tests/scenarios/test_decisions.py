"""A simulated fault through engine, ladder and rails: done at once, in maintenance, looked on."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import pytest

from actions.ledger import Ledger
from actions.rails import decide, recheck, tells
from actions.service import ActionService
from telemetry.actions import Decision, RailContext, Window
from telemetry.findings import ISOLATING, Incident
from telemetry.settings import ActSettings, RailSettings
from tests.folding import fresh, simulated

FAULTY = "n003"
FINE = RailContext(nodes=8, blind_nodes=0, telemetry_age_s=1.0, listing_age_s=1.0)
AUTO = RailSettings(mode_default="auto")


@lru_cache(maxsize=1)
def told() -> tuple[tuple[float, Incident], ...]:
    """Each revision of each incident, with the log's time."""
    fold, said = fresh(), []
    for arrived in simulated(8, 12.0, (f"xid79@{FAULTY}+300",)):
        said += [(fold.now, one) for one in fold.step(arrived).incidents]
    return tuple(said)


def lived(context: RailContext, rails: RailSettings) -> list[Decision]:
    """What becomes of what the engine tells, each decision as it is right before its act."""
    ledger = Ledger()
    settings = ActSettings(rails=rails, first_observe_s=0.0)
    service = ActionService(ledger, settings, decide, lambda _now_s: context)
    final: list[Decision] = []
    for now_s, incident in told():
        for decision in service.incident(incident, None, now_s):
            ledger.take(decision)
            final.append(recheck(decision, incident, context, rails, now_s))
    return final


def isolated(decisions: list[Decision]) -> list[list[str]]:
    return [
        one.verdict.targets
        for one in decisions
        if one.state == "approved" and one.verdict.action in ISOLATING
    ]


def test_the_faulty_node_is_isolated_once_and_people_hear_of_it() -> None:
    decisions = lived(FINE, AUTO)

    assert [[FAULTY]] == isolated(decisions)
    assert any(tells(one) for one in decisions)


def test_in_a_maintenance_window_the_same_is_recorded_and_neither_paged_nor_done() -> None:
    begun_s = told()[0][0]
    window = Window("firmware", begun_s - 60.0, begun_s + 7_200.0, [FAULTY])
    decisions = lived(msgspec.structs.replace(FINE, windows=[window]), AUTO)
    about_it = [one for one in decisions if FAULTY in one.verdict.targets]

    assert [] == isolated(decisions)
    assert {"refused"} == {one.state for one in about_it}
    assert [] == [one.id for one in about_it if tells(one)]
    assert "maintenance window firmware" in about_it[0].reason


def test_a_window_of_other_nodes_changes_nothing() -> None:
    begun_s = told()[0][0]
    window = Window("firmware", begun_s - 60.0, begun_s + 7_200.0, ["n001"])

    assert [[FAULTY]] == isolated(lived(msgspec.structs.replace(FINE, windows=[window]), AUTO))


@pytest.mark.parametrize(
    ("context", "rails"),
    [
        (FINE, RailSettings()),
        (msgspec.structs.replace(FINE, first_start=True), AUTO),
        (FINE, msgspec.structs.replace(AUTO, shadow=("certain machine fault",))),
    ],
    ids=["nothing set", "first start", "shadow"],
)
def test_where_it_only_looks_on_everything_is_noted_and_nothing_done(
    context: RailContext, rails: RailSettings
) -> None:
    decisions = lived(context, rails)

    assert {"noted"} == {one.state for one in decisions}
    assert any(f"observed only: would isolate_and_restart {FAULTY}" in d.reason for d in decisions)


def test_every_decision_has_the_ladders_verdict_and_is_the_same_once_more() -> None:
    decisions = lived(FINE, AUTO)
    verdicts = {
        (one.id, msgspec.json.encode(verdict)) for _, one in told() for verdict in one.verdicts
    }

    assert {(one.incident, msgspec.json.encode(one.verdict)) for one in decisions} <= verdicts
    assert msgspec.json.encode(decisions) == msgspec.json.encode(lived(FINE, AUTO))
