"""Each saying of a decision made again from the log alone, and what is no longer as it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import budgets, context, rail_rules, rails, service, updating
from actions.access import Person
from actions.audit import Auditor, Checked, differences
from actions.ledger_log import encode
from actions.rails import decide, recheck
from actions.rules import DECIDING
from actions.service import FALSE_ALARM, Asked
from actions.site import Site as Facts
from telemetry.actions import (
    ActionRecord,
    ActRules,
    Command,
    Decision,
    LedgerPart,
    Rail,
    SiteFacts,
    Verb,
    Where,
)
from telemetry.findings import Incident
from telemetry.settings import ActSettings, RailSettings
from telemetry.topics import ACTIONS, INCIDENTS
from tests.acting import Site, asked, incident

NOW_S = 1_700_000_000.0
RAILS = RailSettings(
    mode_default="auto", cluster_nodes_per_hour=3, pool_nodes_per_hour=3,
    mode={"isolate": "auto", "restart": "approve"}, cooldown_s=60.0,
)  # fmt: skip
SETTINGS = ActSettings(rails=RAILS, first_observe_s=0.0, approval_s=600.0, command_s=60.0)
FACTS = Facts(
    places={f"node-i{n}": Where(f"r{n % 3}", f"l{n}", "p1", "7") for n in range(12)},
    drained_by={"node-i4": "ops"}, protected=["node-i5"], nodes=12, blind_nodes=0,
    measured_at=NOW_S, telemetry_at=NOW_S, listing_at=NOW_S,
)  # fmt: skip


def site(settings: ActSettings = SETTINGS) -> Site:
    made = Site(settings, decide)
    made.recheck = recheck
    made.clock.set(NOW_S + 5.0)
    made.facts = FACTS
    return made


def audit(
    of: Site, *, settings: ActSettings | None = None, first: int = 0,
    change: Callable[[ActionRecord], ActionRecord] = lambda one: one,
) -> list[Checked]:  # fmt: skip
    """What comes of the log from its `first` record on, each record changed by `change`."""
    return audited(of, settings=settings, first=first, change=change)[0]


def audited(
    of: Site, *, settings: ActSettings | None = None, first: int = 0,
    change: Callable[[ActionRecord], ActionRecord] = lambda one: one,
) -> tuple[list[Checked], list[str]]:  # fmt: skip
    told = {
        (0, line.offset): msgspec.json.decode(line.value or b"", type=Incident)
        for line in of.log.records((INCIDENTS, 0), 0)
    }
    auditor = Auditor(told.get, whole=first == 0, settings=settings)
    found = []
    for number, record in enumerate(of.records()):
        if number >= first:
            found.append(auditor.take(number, encode(change(record))))
    return [one for one in found if one is not None], auditor.faults


def busy(settings: ActSettings = SETTINGS) -> Site:
    """Everything that can become of a decision, over three instances."""
    of = site(settings)
    one = of.start()
    of.tell(*(incident(f"i{number}") for number in range(6)))
    one.step(3)
    of.clock.advance(7.0)
    of.facts = msgspec.structs.replace(
        FACTS, telemetry_at=NOW_S + 9.0, measured_at=NOW_S + 9.0, blind_nodes=4,
        drained_by={"node-i7": "ops"},
    )  # fmt: skip
    of.tell(*(incident(f"i{number}", action="restart") for number in range(6, 9)))
    one.step(2)
    one.ask(asked("approve", "i6"))
    one.ask(asked("deny", "i7"))
    one.ask(asked("isolate", "node-i10"))
    one.ask(asked("release", "node-i10"))
    two = of.start()
    two.step(2)
    of.tell(incident("i8", action="restart", rev=1, closed_at=NOW_S + 12.0))
    two.step(2)
    of.tell(incident("i9", action="restart"), incident("i2", rev=1), incident("i10"))
    two.step(2)
    of.clock.advance(700.0)
    three = of.start()
    three.step(3)
    return of


def test_every_saying_comes_out_byte_for_byte_over_takeovers_and_people() -> None:
    of = busy()
    found = audit(of)
    assert {"equal"} == {one.result for one in found}, [one for one in found if one.reason]
    assert len(found) == len(of.of(Decision))
    states = {one.state for one in found}
    assert states == {"approved", "waiting", "refused", "denied", "expired"}


class Power(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("point", [
    f"{what}.{when}" for what in ("decision", "intent", "act", "outcome")
    for when in ("before", "after")
])  # fmt: skip
def test_after_a_death_at_any_point_every_saying_comes_out(point: str) -> None:
    of = site(msgspec.structs.replace(SETTINGS, snapshot_records=4))
    first = of.start()
    of.tell(incident("i1"), incident("i2"))
    first.points[point] = Power()
    with pytest.raises(Power):
        first.step(3)
    second = of.start()
    of.clock.advance(40.0)
    at = of.clock.time_s()
    of.facts = msgspec.structs.replace(FACTS, telemetry_at=at, measured_at=at, listing_at=at)
    of.tell(incident("i3"), incident("i4"))
    second.step(4)
    found, faults = audited(of)
    assert {"equal"} == {one.result for one in found}, [one for one in found if one.reason]
    assert {one.incident for one in found} == {"i1", "i2", "i3", "i4"}
    assert not faults


def test_what_the_rails_refuse_right_before_the_act_comes_out_too() -> None:
    of = site()
    one = of.start()
    story = incident("i1", action="restart")
    of.tell(story)
    one.step(2)
    one.ask(asked("pause"))
    one.ask(asked("approve", "i1"))
    of.clock.advance(3.0)
    later = msgspec.structs.replace(story.verdict, action="rollback", at=NOW_S + 8.0)
    of.tell(msgspec.structs.replace(story, rev=1, verdicts=[story.verdict, later]))
    one.step(2)
    one.ask(asked("resume", role="admin"))
    one.step(2)
    last = [one for one in of.of(Decision) if isinstance(one, Decision)][-1]
    assert (last.state, last.reason) == ("refused", "the ladder no longer says it")
    assert last.source == (0, 1)
    assert {"equal"} == {one.result for one in audit(of)}


def test_a_false_alarm_refuses_what_was_approved_before_it_and_comes_out_too() -> None:
    of = site()
    one = of.start()
    of.tell(incident("i1", action="restart"))
    one.step(2)
    one.ask(asked("pause"))
    one.ask(asked("approve", "i1"))
    one.ask(asked("false_alarm", "i1"))
    one.ask(asked("resume", role="admin"))
    one.step(2)
    last = [one for one in of.of(Decision) if isinstance(one, Decision)][-1]
    assert (last.state, last.reason) == ("refused", FALSE_ALARM)
    assert of.of(Command) == []
    assert {"equal"} == {one.result for one in audit(of)}


def test_the_restart_of_an_update_comes_out_too() -> None:
    of = site()
    one = of.start()
    one.step()
    person = Person("otto", "operator")
    for job in ("7", "8"):
        update = Asked(
            verb="update", target=job, person=person, versions={"code": "abc"}, urgent=True
        )
        assert one.ask(update).status == 200
    one.step(2)
    found = audit(of)
    assert [(one.state, one.result) for one in found] == [("approved", "equal")] * 2


def test_settings_that_decide_are_those_in_the_log() -> None:
    """A setting that the deciding code reads has to be in `DECIDING`."""
    read = {"recovery", "versions"}  # of commands and updates, not of decisions
    for module in (service, context, rails, rail_rules, budgets, updating):
        text = Path(module.__file__ or "").read_text("utf-8")
        read |= set(re.findall(r"(?<![_a-z.])(?:self\.)?settings\.([a-z_]+)", text))
    assert read - set(RailSettings.__struct_fields__) - {"recovery", "versions"} <= set(DECIDING)
    assert {"rails", "approval_s", "keep_s"} <= read


def test_an_archive_that_begins_at_a_snapshot_is_checked_from_there_on() -> None:
    of = busy(msgspec.structs.replace(SETTINGS, snapshot_records=8))
    records = of.records()
    first = next(n for n, one in enumerate(records) if isinstance(one, LedgerPart))
    whole = audit(of)
    assert {"equal"} == {one.result for one in whole}, [one for one in whole if one.reason]
    late, faults = audited(of, first=first)
    assert not faults
    assert [one for one in whole if one.offset > first] == late


def test_what_stands_before_the_first_snapshot_is_not_checked_and_says_why() -> None:
    of = busy()
    (why,) = {(one.result, one.reason) for one in audit(of, first=2)}
    assert why == (
        "unchecked", "it stands before the first snapshot of an archive that begins later",
    )  # fmt: skip


def test_a_changed_rail_setting_is_a_difference_that_names_the_rail() -> None:
    def other(record: ActionRecord) -> ActionRecord:
        if not isinstance(record, ActRules):
            return record
        rails = {**record.settings["rails"], "cluster_nodes_per_hour": 4}
        return msgspec.structs.replace(record, settings={**record.settings, "rails": rails})

    of = busy()
    for found in (
        audit(of, change=other),
        audit(of, settings=msgspec.structs.replace(
            SETTINGS, rails=msgspec.structs.replace(RAILS, cluster_nodes_per_hour=4)
        )),
    ):  # fmt: skip
        unlike = [one for one in found if one.result == "differs"]
        assert unlike
        fields = {difference.field for difference in unlike[0].differences}
        assert any(field.endswith(".reason") and field.startswith("rails[") for field in fields)
        assert "of 3 in an hour" in unlike[0].differences[0].logged
        assert "of 4 in an hour" in unlike[0].differences[0].remade


def test_what_was_said_of_the_site_and_is_gone_is_a_difference() -> None:
    def other(record: ActionRecord) -> ActionRecord:
        return SiteFacts(at=record.at) if isinstance(record, SiteFacts) else record

    assert "differs" in {one.result for one in audit(busy(), change=other)}


def test_a_decision_that_was_put_in_or_altered_is_found() -> None:
    of = busy()
    victim = next(one for one in of.of(Decision) if isinstance(one, Decision) and one.rails)

    def forged(record: ActionRecord) -> ActionRecord:
        if not isinstance(record, Decision) or record != victim:
            return record
        return msgspec.structs.replace(record, rails=[Rail("breaker", True, "calm")])

    unlike = [one for one in audit(of, change=forged) if one.result == "differs"]
    assert unlike[0].decision == victim.id
    assert unlike[0].differences[0].field == "rails"

    ghost = msgspec.structs.replace(victim, id="ghost", source=None)
    of.log.append(ACTIONS, encode(ghost))
    last = audit(of)[-1]
    assert (last.decision, last.result) == ("ghost", "differs")
    assert last.reason == "nothing that stands in the log leads to it"


def test_an_incident_that_the_archive_lacks_is_said_and_is_no_difference() -> None:
    of = busy()
    auditor = Auditor(lambda _place: None, whole=True)
    found = [auditor.take(n, encode(one)) for n, one in enumerate(of.records())]
    results = {(one.result, one.reason.rpartition(" 0@")[0]) for one in found if one is not None}
    assert ("unchecked", "nodewarden.incidents") in results
    assert "differs" not in {result for result, _ in results}


def test_a_snapshot_that_says_otherwise_than_the_log_is_a_fault() -> None:
    def other(record: ActionRecord) -> ActionRecord:
        if not isinstance(record, LedgerPart) or not record.decisions:
            return record
        first = msgspec.structs.replace(record.decisions[0], by="nobody")
        return msgspec.structs.replace(record, decisions=[first, *record.decisions[1:]])

    of = busy(msgspec.structs.replace(SETTINGS, snapshot_records=8))
    _, faults = audited(of, change=other)
    assert "is not as it was said" in faults[0]


def test_settings_of_another_version_are_not_decided_by() -> None:
    def other(record: ActionRecord) -> ActionRecord:
        if not isinstance(record, ActRules):
            return record
        return msgspec.structs.replace(record, version="9", settings={"rails": {"new": 1}})

    found = audit(busy(), change=other)
    assert {"unchecked"} == {one.result for one in found}
    assert found[0].reason.startswith("the settings of nodewarden 9 are none of this version")


def test_a_log_without_settings_is_of_an_older_version_and_not_checked() -> None:
    def other(record: ActionRecord) -> ActionRecord:
        return SiteFacts(at=0.0) if isinstance(record, ActRules) else record

    found = audit(busy(), change=other)
    assert {("unchecked", "no settings stand in the log before it")} \
        == {(one.result, one.reason) for one in found}  # fmt: skip


def test_the_ledger_forgets_and_the_audit_does_not_mind() -> None:
    keep_s = 900.0
    settings = msgspec.structs.replace(SETTINGS, keep_s=keep_s)
    of = site(settings)
    one = of.start()
    for number in range(8):
        at = of.clock.time_s()
        of.facts = msgspec.structs.replace(FACTS, telemetry_at=at, measured_at=at, listing_at=at)
        story = incident("i1")
        verdict = msgspec.structs.replace(story.verdict, at=at)
        story = msgspec.structs.replace(story, id=f"s{number}", verdict=verdict, verdicts=[verdict])
        of.tell(story, msgspec.structs.replace(story, rev=1, closed_at=at))
        one.step(3)
        of.clock.advance(400.0)
    assert len(one.ledger.decisions) < 8
    found = audit(of)
    assert {"equal"} == {one.result for one in found}, [one for one in found if one.reason]


ACTIONS_TOLD = st.sampled_from(["isolate", "restart", "none"])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, 5), ACTIONS_TOLD),
        st.tuples(st.just("later"), st.integers(0, 5), st.sampled_from(["restart", "rollback"])),
        st.tuples(st.just("close"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("merge"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("wait"), st.integers(0, 900), st.just("")),
        st.tuples(st.just("facts"), st.integers(0, 12), st.sampled_from(["", "ops"])),
        st.tuples(st.just("takeover"), st.just(0), st.just("")),
        st.tuples(
            st.sampled_from(["approve", "deny", "isolate", "release", "pause", "resume", "ack"]),
            st.integers(0, 5), st.just(""),
        ),
    ),
    max_size=25,
)  # fmt: skip


def moved(of: Site, told: dict[int, Incident], move: tuple[str, int, str]) -> None:
    """One thing that happens."""
    what, number, word = move
    name, now_s, known = f"i{number}", of.clock.time_s(), told.get(number)
    match what:
        case "tell":
            action: Any = word
            story = incident(name, action=action)
            verdict = msgspec.structs.replace(story.verdict, at=now_s)
            told[number] = msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict])
        case "later" if known is not None:
            verdict = msgspec.structs.replace(known.verdict, action=word, at=now_s)
            told[number] = msgspec.structs.replace(known, verdicts=[*known.verdicts, verdict])
        case "close" if known is not None:
            told[number] = msgspec.structs.replace(known, closed_at=now_s)
        case "merge" if known is not None:
            told[number] = msgspec.structs.replace(known, merged_into="i0")
        case "wait":
            of.clock.advance(float(number))
        case "facts":
            of.facts = msgspec.structs.replace(
                FACTS, blind_nodes=number, telemetry_at=now_s, measured_at=now_s, listing_at=now_s,
                drained_by={f"node-i{number}": word} if word else {},
            )  # fmt: skip
        case "takeover":
            of.start()
        case _ if what in get_args(Verb) and of.instance is not None:
            verb: Any = what
            target = f"node-{name}" if what in ("isolate", "release") else name
            of.instance.ask(asked(verb, target, role="admin"))
    if what in ("tell", "later", "close", "merge") and number in told:
        rev = sum(1 for _ in of.log.records((INCIDENTS, 0), 0))
        told[number] = msgspec.structs.replace(told[number], rev=rev)
        of.tell(told[number])


@settings(max_examples=60, deadline=None)
@given(MOVES, st.sampled_from([5, 1_000]))
def test_whatever_happens_each_saying_comes_out(
    moves: list[tuple[str, int, str]], snapshot_records: int
) -> None:
    rules = msgspec.structs.replace(SETTINGS, snapshot_records=snapshot_records, keep_s=3_600.0)
    of = site(rules)
    of.start()
    told: dict[int, Incident] = {}
    for move in moves:
        moved(of, told, move)
        assert of.instance is not None
        of.instance.step(2)
    found, faults = audited(of)
    assert {one.result for one in found} <= {"equal"}, [one for one in found if one.reason]
    assert not faults


@pytest.mark.parametrize("broken", [b"", b"[", b'{"kind":"decision"}', b"\xff", b"null"])
def test_what_is_no_record_of_ours_is_passed(broken: bytes) -> None:
    assert Auditor(lambda _place: None, whole=True).take(0, broken) is None
    assert Auditor(lambda _place: None, whole=True).take(0, None) is None


def test_a_pair_that_was_read_back_as_a_list_does_not_differ() -> None:
    logged = {"source": [0, 4], "state": "noted"}
    found = list(differences(logged, {"source": (0, 4), "state": "approved"}))
    assert [one.field for one in found] == ["state"]
    assert [one.field for one in differences(logged, {**logged, "source": (0, 5)})] == ["source[1]"]
