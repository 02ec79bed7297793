"""Each rail says no where it must, with its numbers; and what becomes of the verdict then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.rails import decide, may_change, recheck, tells
from actions.windows import calendar
from telemetry.actions import Decision, RailContext, Used, Where, Window
from telemetry.errors import SettingsError
from telemetry.findings import Action, Evidence, Incident, Suspect, Verdict
from telemetry.settings import RailSettings

NOW = 100_000.0
AUTO = RailSettings(mode_default="auto")
PLACES = {
    "n1": Where("r1", "l1", "gpu", "j1"),
    "n2": Where("r1", "l1", "gpu", "j1"),
    "n3": Where("r2", "l1", "gpu", "j1"),
}
FINE = RailContext(
    nodes=500, blind_nodes=5, telemetry_age_s=5.0, listing_age_s=300.0, places=PLACES,
)  # fmt: skip


def wanted(*nodes: str, action: Action = "isolate_and_restart", **more: Any) -> Verdict:
    one = Verdict(action, "Because of 1.", list(nodes), "now", NOW - 10.0, "network event")
    return msgspec.structs.replace(one, **more)


def incident(verdict: Verdict, **more: Any) -> Incident:
    line = Evidence("flap", "link", 2.0, 1.0, "", NOW - 60.0, "2 drops", "n1")
    one = Incident(
        id="i1", rev=3, scope="node:n1", opened_at=NOW - 60.0, closed_at=None, job="j1",
        cause="network", kind="nic_flap", severity="critical", confidence=0.8,
        suspects=[Suspect(node, "", 0.8) for node in verdict.targets], evidence=[line],
        verdict=verdict, verdicts=[verdict],
    )  # fmt: skip
    return msgspec.structs.replace(one, **more)


def decided(
    verdict: Verdict | None = None, settings: RailSettings = AUTO, **context: Any
) -> Decision:
    verdict = wanted("n1") if verdict is None else verdict
    known = msgspec.structs.replace(FINE, **context)
    return decide(verdict, incident(verdict), known, settings, NOW)


def noes(decision: Decision) -> dict[str, str]:
    """What said no, and why."""
    return {rail.name: rail.reason for rail in decision.rails if not rail.passed}


# -- modes


def test_with_every_rail_content_the_mode_decides() -> None:
    modes = {"auto": "approved", "approve": "waiting", "observe": "noted"}

    for mode, state in modes.items():
        made = decided(settings=RailSettings(mode={"isolate_and_restart": mode}))  # type: ignore[dict-item]
        assert (mode, state) == (made.mode, made.state)
        assert noes(made) == {}


def test_each_kind_of_action_has_its_own_mode_and_observing_is_what_nobody_set() -> None:
    settings = RailSettings(mode={"isolate": "auto"})

    assert "noted" == decided(settings=settings).state
    assert "approved" == decided(wanted("n1", action="isolate"), settings).state
    assert "observed only: would isolate_and_restart n1" == decided(settings=RailSettings()).reason


def test_work_is_never_thrown_away_without_a_person() -> None:
    held = decided(wanted("n1", "n2", action="isolate", step="quarantine"))
    back = decided(wanted(action="rollback"))

    assert ["waiting", "waiting"] == [held.state, back.state]
    assert "quarantine is never done without a person" in held.reason
    assert "rollback is never done without a person" in back.reason


def test_the_ladders_verdict_stands_unchanged_and_every_rail_says_why() -> None:
    verdict = wanted("n1")
    made = decided(verdict)

    assert verdict == made.verdict
    assert ("i1", 3, "j1", NOW) == (made.incident, made.rev, made.job, made.at)
    assert all(rail.reason for rail in made.rails)
    assert made == decided(verdict)  # the same, byte for byte, whenever it is asked again


def test_a_no_is_a_decision_too() -> None:
    nothing = decided(wanted(action="none"))
    page = decided(wanted(action="page"))

    assert ("noted", "none: nothing is to be done") == (nothing.state, nothing.reason)
    assert "noted" == page.state
    assert [False, True] == [tells(nothing), tells(page)]


# -- rails that say no


@pytest.mark.parametrize(
    ("context", "rail", "words"),
    [
        ({"paused": True}, "pause", "a person paused everything"),
        ({"telemetry_age_s": 61.0}, "fresh telemetry", "61 s old, at most 60 s"),
        ({"telemetry_age_s": None}, "fresh telemetry", "nobody knows"),
        ({"listing_age_s": 1_801.0}, "fresh listing", "1801 s old, at most 1800 s"),
        ({"protected": ["n1"]}, "protected", "n1 is protected"),
        ({"drained_by": {"n1": "alice"}}, "others' drain", "n1 by alice"),
        ({"undone_at": {"n1": NOW - 100.0}}, "undone by a person", "n1 100 s ago"),
        ({"booted_at": {"n1": NOW - 599.0}}, "settled after boot", "at least 600 s"),
        ({"acted_at": {"n1": NOW - 1_799.0}}, "cooldown", "at least 1800 s"),
        ({"attempts": {"n1": 3}}, "attempts", "n1 was taken out 3 times in 604800 s, fewer than 3"),
        ({"used": {"job:j1": Used(2, 2)}}, "budget job:j1 hour", "2 used and 1 wanted of 2"),
        ({"used": {"rack:r1": Used(0, 4)}}, "budget rack:r1 day", "4 used and 1 wanted of 4"),
        ({"used": {"leaf:l1": Used(2, 2)}}, "budget leaf:l1 hour", "in an hour"),
        ({"used": {"pool:gpu": Used(4, 4)}}, "budget pool:gpu hour", "of 4"),
        ({"used": {"cluster": Used(0, 12)}}, "budget cluster day", "of 12"),
        (
            {"recent": {f"m{number}": NOW - 1.0 for number in range(7)}},
            "breaker",
            "8 nodes wanted out in 600 s, it opens at 8",
        ),
    ],
)
def test_each_rail_refuses_with_its_numbers(context: dict[str, Any], rail: str, words: str) -> None:
    made = decided(**context)

    assert "refused" == made.state
    assert [rail] == list(noes(made))
    assert words in noes(made)[rail]
    assert rail in made.reason
    assert tells(made)  # a person hears of what was refused


@pytest.mark.parametrize(
    "context",
    [
        {"telemetry_age_s": 60.0},
        {"listing_age_s": 1_800.0},
        {"undone_at": {"n1": NOW - 86_400.0}},
        {"booted_at": {"n1": NOW - 600.0}},
        {"acted_at": {"n1": NOW - 1_800.0, "n2": NOW}},
        {"attempts": {"n1": 2, "n2": 9}},
        {"used": {"job:j1": Used(1, 3), "job:j2": Used(9, 9), "rack:r2": Used(9, 9)}},
        {"recent": {f"m{number}": NOW - 1.0 for number in range(6)}},
        {"drained_by": {"n1": "", "n2": "alice"}},
    ],
)
def test_at_its_limit_a_rail_still_lets_pass_and_others_nodes_do_not_count(
    context: dict[str, Any],
) -> None:
    assert "approved" == decided(**context).state


def test_an_old_verdict_is_not_acted_on() -> None:
    made = decided(wanted("n1", at=NOW - 3_601.0))

    assert {"fresh verdict": "3601 s old, at most 3600 s"} == noes(made)
    assert "refused" == made.state


def test_a_merged_incident_is_refused() -> None:
    verdict = wanted("n1")
    made = decide(verdict, incident(verdict, merged_into="i0"), FINE, AUTO, NOW)

    assert "the incident was merged into i0" == noes(made)["incident"]


def test_settings_protect_nodes_too() -> None:
    made = decided(settings=RailSettings(mode_default="auto", protected=("n[1-2]",)))

    assert ["protected"] == list(noes(made))


def test_coverage_guard_with_too_many_blind_nodes_nothing_is_automatic() -> None:
    for blind, nodes in ((101, 500), (None, 500), (0, None)):
        made = decided(blind_nodes=blind, nodes=nodes)
        assert ("approve", "waiting") == (made.mode, made.state)
        assert "coverage" in made.reason
    assert "101 of 500 nodes blind (20 %), at most 20 %" in decided(blind_nodes=101).reason
    assert "approved" == decided(blind_nodes=100).state
    observed = decided(settings=RailSettings(), blind_nodes=400)
    assert "observe" == observed.mode  # never less careful than what was set


def test_a_restart_asks_for_no_nodes_budget() -> None:
    made = decided(wanted(action="restart"), used={"job:j1": Used(9, 9)}, breaker_open=True)

    assert "approved" == made.state


# -- shadow mode, first start


def test_a_new_rule_in_shadow_mode_is_recorded_and_neither_done_nor_paged() -> None:
    rung = decided(settings=RailSettings(mode_default="auto", shadow=("network event",)))
    detector = decided(settings=RailSettings(mode_default="auto", shadow=("flap",)))

    for made in (rung, detector):
        assert ("observe", "noted", False) == (made.mode, made.state, tells(made))
        assert "shadow" in made.reason


def test_what_rests_on_an_old_detector_too_is_no_shadow() -> None:
    verdict = wanted("n1")
    both = incident(verdict)
    both = msgspec.structs.replace(
        both, evidence=[*both.evidence, msgspec.structs.replace(both.evidence[0], detector="ecc")]
    )
    settings = RailSettings(mode_default="auto", shadow=("flap",))

    assert "approved" == decide(verdict, both, FINE, settings, NOW).state


# -- maintenance


WEEK = Window("rack r1", NOW - 10.0, NOW + 50.0, ["n1", "n2"])


def test_in_a_maintenance_window_everything_is_recorded_and_nobody_is_paged() -> None:
    acting = decided(windows=[WEEK])
    paging = decided(wanted("n1", action="page"), windows=[WEEK])

    assert "refused" == acting.state
    assert "maintenance window rack r1, 50 s to go" == noes(acting)["maintenance"]
    assert ["noted", False, False] == [paging.state, tells(acting), tells(paging)]


@pytest.mark.parametrize(("since", "until"), [(NOW - 10.0, NOW), (NOW + 0.1, NOW + 10.0)])
def test_a_window_that_is_over_or_to_come_changes_nothing(since: float, until: float) -> None:
    assert "approved" == decided(windows=[Window("w", since, until)]).state


def test_a_window_of_all_nodes_covers_what_names_none() -> None:
    verdict = wanted(action="page")
    nameless = msgspec.structs.replace(incident(verdict), evidence=[])
    whole = msgspec.structs.replace(FINE, windows=[Window("all", NOW - 1.0, NOW + 1.0)])
    part = msgspec.structs.replace(FINE, windows=[WEEK])

    assert not tells(decide(verdict, nameless, whole, AUTO, NOW))
    assert tells(decide(verdict, nameless, part, AUTO, NOW))


def test_of_a_story_with_nodes_outside_the_window_people_hear_but_nothing_is_done() -> None:
    made = decided(wanted("n2", "n3"), windows=[WEEK])

    assert ["maintenance of a target"] == list(noes(made))
    assert ("refused", True) == (made.state, tells(made))


def test_only_other_nodes_in_the_window_leave_the_targets_free() -> None:
    assert "approved" == decided(wanted("n3"), windows=[WEEK]).state


def test_the_calendar_is_a_list_in_the_settings() -> None:
    settings = RailSettings(
        mode_default="auto",
        maintenance=("1970-01-02T03:00:00Z/1970-01-02T05:00:00+01:00 n[1-2]",),
    )

    assert ["maintenance"] == list(noes(decided(settings=settings)))
    assert [97_200.0, 100_800.0] == [
        time for window in calendar(settings.maintenance) for time in (window.since, window.until)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "1970-13-02T03:00:00Z/1970-01-02T04:00:00Z",
        "1970-01-02T03:00:00Z/1970-01-02T03:00:00Z",
        "1970-01-02T03:00:00Z/1970-01-02T04:00:00Z n[1-",
    ],
)
def test_a_window_that_is_none_stops_the_start(line: str) -> None:
    with pytest.raises(SettingsError, match="maintenance"):
        calendar((line,))


# -- once more, right before the act


def approved(**more: Any) -> Decision:
    return msgspec.structs.replace(decided(), **{"expires_at": NOW + 60.0, **more})


def test_right_before_the_act_a_decision_that_still_holds_is_unchanged() -> None:
    one = approved()

    # What it used up itself does not speak against it.
    used = msgspec.structs.replace(
        FINE, used={"job:j1": Used(2, 2)}, recent={"n1": NOW}, acted_at={"n1": NOW}
    )
    assert one == recheck(one, incident(one.verdict), used, AUTO, NOW + 1.0)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"paused": True}, "pause"),
        ({"breaker_open": True, "recent": {"m1": NOW, "m2": NOW}}, "breaker"),
        ({"drained_by": {"n1": "bob"}}, "n1 by bob"),
        ({"undone_at": {"n1": NOW}}, "undone by a person"),
        ({"windows": [WEEK]}, "maintenance"),
        ({"telemetry_age_s": 600.0}, "fresh telemetry"),
        ({"blind_nodes": 400}, "coverage"),
        ({"used": {"job:j1": Used(3, 3)}}, "budget job:j1 hour: 3 of 2 in an hour"),
    ],
)
def test_right_before_the_act_the_world_is_asked_again(context: dict[str, Any], words: str) -> None:
    one = approved()
    known = msgspec.structs.replace(FINE, **context)
    said = recheck(one, incident(one.verdict), known, AUTO, NOW + 1.0)

    assert ("refused", 1, "rails") == (said.state, said.revision, said.by)
    assert words in said.reason


def test_what_a_person_approved_needs_no_coverage_and_may_be_old() -> None:
    one = approved(by="alice", expires_at=NOW + 9_000.0)
    blind = msgspec.structs.replace(FINE, blind_nodes=400)

    assert one == recheck(one, incident(one.verdict), blind, AUTO, NOW + 5_000.0)


def test_what_was_not_approved_stays_as_it_is() -> None:
    noted = decided(settings=RailSettings())

    assert noted == recheck(noted, None, FINE, AUTO, NOW + 9_000.0)


def test_a_verdict_that_the_ladder_no_longer_says_is_refused() -> None:
    one = approved()
    other = incident(wanted("n2"))

    assert "refused" == recheck(one, other, FINE, AUTO, NOW).state
    assert "no longer known" in recheck(one, None, FINE, AUTO, NOW).reason


def test_once_a_step_worked_nothing_more_is_done() -> None:
    one = approved()
    worked = Verdict("none", "The retry, 60 s ago, worked.", [], "now", NOW, "what worked", None,
                     None, "transient")  # fmt: skip
    over = incident(one.verdict, verdicts=[one.verdict, worked])

    assert "a step worked already" in decide(one.verdict, over, FINE, AUTO, NOW).reason
    assert "refused" == recheck(one, over, FINE, AUTO, NOW).state
    later = msgspec.structs.replace(one.verdict, at=NOW + 1.0)  # it broke again
    again = incident(later, verdicts=[one.verdict, worked, later])
    assert "approved" == decide(later, again, FINE, AUTO, NOW + 1.0).state


def test_a_retry_is_over_when_the_ladder_asks_for_the_next_step() -> None:
    retry, back = wanted(action="restart"), wanted(action="rollback")
    one = decide(retry, incident(retry), FINE, AUTO, NOW)

    assert one == recheck(one, incident(retry), FINE, AUTO, NOW)
    said = recheck(one, incident(retry, verdicts=[retry, back]), FINE, AUTO, NOW)
    assert "the ladder no longer says it" == said.reason


# -- what may be decided again


@pytest.mark.parametrize(
    ("context", "again"),
    [
        ({"paused": True}, True),
        ({"telemetry_age_s": 61.0}, True),
        ({"used": {"job:j1": Used(2, 2)}}, True),
        ({"booted_at": {"n1": NOW}, "acted_at": {"n1": NOW}}, True),
        ({"windows": [WEEK]}, True),
        ({"attempts": {"n1": 3}}, False),
        ({"protected": ["n1"], "paused": True}, False),
        ({"undone_at": {"n1": NOW}}, False),
        ({}, False),
    ],
)
def test_what_a_passing_rail_refused_may_be_decided_again(
    context: dict[str, Any], again: bool
) -> None:
    assert again == may_change(decided(**context))


def test_what_a_person_or_an_old_verdict_ended_is_not_decided_again() -> None:
    denied = msgspec.structs.replace(decided(paused=True), state="denied", by="alice")

    assert not may_change(denied)
    assert not may_change(decided(wanted("n1", at=NOW - 5_000.0), paused=True))


def test_every_rail_stands_in_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rails.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`]+)`", page))
    asked = {*decided().rails, *decided(wanted("n2", "n3"), windows=[WEEK]).rails}
    names = {re.sub(r"^budget \S+ ", "budget <scope> ", rail.name) for rail in asked}

    assert names <= named
    assert set(re.findall(r"`([a-z]+_[a-z_]+)`", page)) <= {
        *RailSettings.__struct_fields__, "mode", "mode_default",
    }  # fmt: skip
