"""The active instance: each decision once, nothing done late, twice or unseen, people obeyed."""

from __future__ import annotations

import msgspec
import pytest

from actions.active import REFUSALS_PER_MINUTE
from actions.ledger_log import decode, encode, rebuild
from actions.service import difference
from telemetry.actions import Command, Decision, LedgerPart, Outcome, Preconditions, Request
from telemetry.errors import Fenced
from tests.acting import SETTINGS, Site, asked, incident


class Power(BaseException):
    """The process is gone."""


def states(site: Site) -> list[str]:
    return [one.state for one in site.of(Decision) if isinstance(one, Decision)]


def outcomes(site: Site) -> list[tuple[str, str]]:
    return [(one.status, one.reason) for one in site.of(Outcome) if isinstance(one, Outcome)]


def test_an_approved_decision_is_an_intent_then_an_act_then_an_outcome() -> None:
    site = Site()
    site.tell(incident())
    site.start().step(2)
    kinds = [type(one).__name__ for one in site.records()]
    assert kinds == ["Lease", "ActRules", "Decision", "Command", "Outcome"]
    assert len(site.world.done) == 1


def test_the_same_verdict_said_again_is_decided_once() -> None:
    site = Site()
    site.tell(incident(), incident(rev=1), incident(rev=2))
    site.start().step(3)
    site.tell(incident(rev=3))
    site.start().step(3)
    assert len(site.of(Decision)) == 1


def test_each_new_verdict_of_a_story_is_decided() -> None:
    site = Site()
    one = incident()
    later = msgspec.structs.replace(one.verdict, at=one.verdict.at + 60.0, targets=["other"])
    site.tell(one, msgspec.structs.replace(one, rev=1, verdicts=[one.verdict, later]))
    site.start().step(3)
    assert len(site.of(Decision)) == len(site.of(Command)) == 2


@pytest.mark.parametrize("point", [
    "decision.before", "decision.after", "intent.before", "intent.after", "act.before",
    "act.after", "outcome.before", "outcome.after",
])  # fmt: skip
def test_whoever_comes_after_a_dead_instance_does_each_thing_once(point: str) -> None:
    site = Site()
    site.tell(incident("a"), incident("b"))
    first = site.start()
    first.points[point] = Power()
    with pytest.raises(Power):
        first.step(3)
    second = site.start()
    second.step(2)
    site.clock.advance(SETTINGS.act_within_s + SETTINGS.call_timeout_s)
    second.step(2)
    assert len(site.of(Decision)) == len(site.of(Command)) == len(site.of(Outcome)) == 2
    assert len(site.world.done) == len(set(site.world.done)) == 2


def test_a_foreign_intent_is_left_alone_while_its_call_may_be_under_way() -> None:
    site = Site()
    site.tell(incident())
    first = site.start()
    first.points["intent.after"] = Power()
    with pytest.raises(Power):
        first.step(2)
    second = site.start()
    site.clock.advance(SETTINGS.act_within_s + SETTINGS.call_timeout_s - 0.1)
    second.step(3)
    assert site.world.done == []
    site.clock.advance(0.2)
    second.step()
    assert len(site.world.done) == 1


def test_a_zombie_that_wakes_after_the_intent_does_not_act_and_is_fenced() -> None:
    site = Site()
    site.tell(incident())
    zombie = site.start()
    zombie.points["intent.after"] = SETTINGS.act_within_s + 0.1
    zombie.step(0)
    commit = zombie.commit

    def slept(records: list[Command]) -> None:
        commit(records)
        zombie.fenced = isinstance(records[0], Command)

    zombie.commit = slept  # type: ignore[method-assign, assignment]
    with pytest.raises(Fenced):
        zombie.step(2)
    assert site.world.done == []


def test_an_act_that_comes_too_late_is_refused_with_its_numbers() -> None:
    site = Site()
    site.tell(incident())
    first = site.start()
    first.points["act.before"] = 5.5
    first.step(2)
    assert outcomes(site) == [("refused", "5.5 s after the intent, at most 5 s")]


def test_what_cannot_be_read_back_is_never_done_a_second_time() -> None:
    site = Site()
    site.tell(incident())
    site.world.readable = False
    first = site.start()
    first.points["act.after"] = Power()
    with pytest.raises(Power):
        first.step(2)
    second = site.start()
    site.clock.advance(60.0)
    second.step(2)
    assert len(site.world.done) == 1
    assert outcomes(site)[0][0] == "unknown"


def test_a_call_without_an_answer_is_unknown() -> None:
    site = Site()
    site.tell(incident("a"))
    site.world.call_fails = True
    site.start().step(2)
    assert [status for status, _ in outcomes(site)] == ["unknown"]


def test_in_a_world_that_is_away_nothing_is_begun_and_in_time_the_decision_expires() -> None:
    site = Site()
    site.world.away = True
    site.tell(incident("a"))
    one = site.start()
    one.step(2)
    assert not site.of(Command)
    site.clock.advance(SETTINGS.command_s)
    one.step()
    assert states(site) == ["approved", "expired"]


def test_when_the_world_is_back_in_time_what_was_decided_is_done() -> None:
    site = Site()
    site.world.away = True
    site.tell(incident("a"))
    one = site.start()
    one.step(2)
    site.world.away = False
    one.step()
    assert not site.of(Command)  # it is not asked again at once
    site.clock.advance(SETTINGS.recovery.look_s)
    one.step()
    assert [status for status, _ in outcomes(site)] == ["done"]


def test_a_story_that_closed_ends_what_waited() -> None:
    site = Site()
    site.tell(incident(job="ask"))
    one = site.start()
    one.step(2)
    site.tell(incident(job="ask", rev=1, closed_at=1_800_000_000.0))
    one.step()
    assert states(site) == ["waiting", "refused"]
    assert one.ask(asked("approve", "a")).status == 409


def test_nobody_approves_what_has_expired() -> None:
    site = Site()
    site.tell(incident(job="ask"))
    one = site.start()
    one.step(2)
    site.clock.advance(SETTINGS.approval_s)
    assert one.ask(asked("approve", "a")).status == 409
    assert states(site)[-1] == "expired"
    refused = [r for r in site.of(Request) if isinstance(r, Request) and not r.accepted]
    assert "expired at" in refused[0].reason
    assert not site.of(Command)


def test_an_approval_lets_it_happen_and_says_by_whom() -> None:
    site = Site()
    site.tell(incident(job="ask"))
    one = site.start()
    one.step(2)
    reply = one.ask(asked("approve", "a"))
    assert (reply.status, reply.body["decisions"][0]["by"]) == (200, "otto")
    assert len(site.world.done) == 1
    assert one.ask(asked("deny", "a")).status == 409


def test_a_denied_decision_stays_denied() -> None:
    site = Site()
    site.tell(incident(job="ask"))
    one = site.start()
    one.step(2)
    assert one.ask(asked("deny", "a")).status == 200
    site.tell(incident(job="ask", rev=1))
    site.start().step(3)
    assert states(site) == ["waiting", "denied"]


def test_a_pause_outlives_the_instance_and_nothing_is_done_in_it() -> None:
    site = Site()
    one = site.start()
    assert one.ask(asked("pause")).status == 200
    site.tell(incident())
    second = site.start()
    second.step(3)
    assert not site.of(Command)
    assert second.ask(asked("resume", role="admin")).status == 200
    assert len(site.world.done) == 1


def test_a_person_isolates_and_releases_and_the_engine_hears_of_the_release() -> None:
    site = Site()
    one = site.start()
    one.step()
    one.ask(asked("isolate", "n7"))
    one.ask(asked("release", "n7"))
    commands = [c for c in site.of(Command) if isinstance(c, Command)]
    assert [(c.action, c.targets) for c in commands] == [("isolate", ["n7"]), ("release", ["n7"])]
    assert [(c.action, c.target, c.by) for c in site.controls] == [("released", "n7", "otto")]


def test_what_people_tell_the_engine_has_its_place_in_one_stream_and_is_repeated_in_it() -> None:
    """The engine knows a repeat by node, source, start and number."""
    site = Site()
    site.tell(incident("a"), incident("b"))
    one = site.start()
    one.step()
    one.ask(asked("false_alarm", "a"))
    one.ask(asked("false_alarm", "b"))
    site.clock.advance(5.0)
    site.start().step()
    places = [(c.source, c.started_at, c.seq, c.target) for c in site.controls]
    assert places[:2] == places[2:]
    assert [place[2] for place in places[:2]] == [0, 1]


def test_a_snooze_needs_an_end_to_come() -> None:
    site = Site()
    site.tell(incident())
    one = site.start()
    one.step()
    assert one.ask(asked("snooze", "nothing", until=2e9)).status == 404
    assert one.ask(asked("snooze", "a")).status == 409
    assert one.ask(asked("snooze", "a", until=one.active._clock.time_s() + 60.0)).status == 200
    assert "a" in one.ledger.snoozed


def test_a_flood_of_forged_tokens_is_counted_and_does_not_fill_the_audit() -> None:
    site = Site()
    one = site.start()
    for _ in range(REFUSALS_PER_MINUTE + 5):
        forged = msgspec.structs.replace(asked("approve", "a", problem="no valid token"),
                                         person=None)  # fmt: skip
        assert one.ask(forged, 401).status == 401
    assert len(site.of(Request)) == REFUSALS_PER_MINUTE
    assert one.metrics.unaudited._value.get() == 5


def test_a_standby_answers_nobody() -> None:
    one = Site().start()
    one.active.stop()
    assert one.desk.ask(asked("pause")).result(0).status == 503


def test_history_that_was_over_before_the_first_start_is_not_decided() -> None:
    site = Site()
    site.tell(incident("old", closed_at=1_600_000_000.0), incident("new"))
    site.start().step(3)
    assert {one.incident for one in site.of(Decision) if isinstance(one, Decision)} == {"new"}


def test_a_rebuilt_ledger_equals_the_one_that_wrote_with_and_without_a_snapshot() -> None:
    settings = msgspec.structs.replace(SETTINGS, snapshot_records=7)
    site = Site(settings)
    one = site.start()
    for number in range(40):
        site.tell(incident(f"i{number}", job="ask" if number % 3 else ""))
        one.step()
    one.ask(asked("approve", "i1"))
    one.ask(asked("snooze", "i2", until=2e9))
    one.ask(asked("release", "n1"))
    one.step()
    assert site.of(LedgerPart)
    found = rebuild(site.log.reader(), 20_000, 100_000)
    for name in ("wanted", "decisions", "commands", "outcomes", "requests", "snoozed", "released",
                 "paused", "epoch", "first_at", "lease_at", "positions", "rules",
                 "site"):  # fmt: skip
        assert getattr(found.ledger, name) == getattr(one.ledger, name), name


def test_the_read_is_bounded_by_the_snapshot() -> None:
    settings = msgspec.structs.replace(SETTINGS, snapshot_records=500)
    site = Site(settings)
    one = site.start()
    for number in range(6_000):
        site.tell(incident(f"i{number}", action="none"))
    one.step(20)
    found = rebuild(site.log.reader(), 20_000, 100_000)
    assert len(found.ledger.decisions) == 6_000
    assert found.records < 6_000


def test_foreign_bytes_in_the_log_are_counted_and_passed() -> None:
    site = Site()
    one = site.start()
    site.log.append("nodewarden.actions", b"[[[[")
    site.log.append("nodewarden.actions", b'{"kind":"decision"}')
    site.tell(incident())
    one.step(2)
    found = rebuild(site.log.reader(), 20_000, 100_000)
    assert (found.rejected, len(found.ledger.decisions)) == (2, 1)


def test_records_survive_the_wire() -> None:
    site = Site()
    site.tell(incident(job="ask"))
    one = site.start()
    one.step(2)
    one.ask(asked("approve", "a"))
    for record in site.records():
        assert decode(encode(record)) == record


def test_what_is_over_is_forgotten_and_what_waits_is_not() -> None:
    site = Site()
    site.tell(incident("a"), incident("b", job="ask"))
    one = site.start()
    one.step(2)
    one.ledger.forget(site.clock.time_s() + 1.0)
    assert [d.incident for d in one.ledger.decisions.values()] == ["b"]
    assert (one.ledger.commands, one.ledger.outcomes) == ({}, {})
    assert one.ledger.of_incident("a") == []


def test_a_long_story_that_is_told_again_is_not_decided_anew() -> None:
    site = Site()
    site.tell(incident("a"), incident("b"))
    one = site.start()
    one.step(2)
    site.tell(incident("b", rev=1, closed_at=site.clock.time_s()))
    one.step()
    site.clock.advance(SETTINGS.keep_s + 60.0)
    one.step()
    assert [d.incident for d in one.ledger.decisions.values()] == ["a"]
    site.tell(incident("a", rev=1))
    one.step()
    assert len(site.of(Decision)) == 2


def test_after_a_lost_broker_it_reads_on_where_it_was_and_past_what_is_gone() -> None:
    site = Site()
    site.tell(incident("a"))
    one = site.start()
    one.step(2)
    site.tell(incident("b"), incident("c"))
    site.log.refuse(1)
    one.step()
    assert len(site.of(Decision)) == 1
    one.step()
    assert len(site.of(Decision)) == 3
    site.tell(incident("d"), incident("e"))
    site.log.trim("nodewarden.incidents", 0, 4)
    one.step(2)
    decided = [made.incident for made in site.of(Decision) if isinstance(made, Decision)]
    assert decided == ["a", "b", "c", "e"]


def test_preconditions_compare_what_was_known() -> None:
    was = Preconditions({"n1": "idle"}, {"n1": ""}, "7", 2)
    assert difference(was, Preconditions({"n1": "idle"}, {}, "7", 2)) == ""
    assert "was 'idle' and is 'down'" in difference(was, Preconditions({"n1": "down"}, {}, "7", 2))
    assert "held by 'ops'" in difference(was, Preconditions({"n1": "idle"}, {"n1": "ops"}, "7", 2))
    assert "attempt 3" in difference(was, Preconditions({"n1": "idle"}, {}, "7", 3))
    assert "unknown" in difference(was, Preconditions())
    assert difference(Preconditions(), was) == ""


def test_the_rails_are_asked_again_before_the_intent() -> None:
    site = Site()
    one_decision: list[Decision] = []

    def refusing(decision: Decision, *_rest: object) -> Decision:
        one_decision.append(decision)
        return msgspec.structs.replace(
            decision, state="refused", reason="the world moved on", revision=decision.revision + 1
        )

    site.recheck = refusing
    site.tell(incident())
    site.start().step(3)
    assert states(site) == ["approved", "refused"]
    assert not site.of(Command)


def test_the_engine_is_told_of_a_step_that_was_made_and_not_of_a_dry_run() -> None:
    for dry_run in (True, False):
        site = Site(msgspec.structs.replace(SETTINGS, dry_run=dry_run))
        story = incident(job="7")
        verdict = msgspec.structs.replace(story.verdict, step="eviction")
        site.tell(msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict]))
        one = site.start()
        one.step(2)
        one.ask(asked("release", "n7"))
        one.step()
        told = [(c.action, c.target, c.seq) for c in site.controls]
        step = [] if dry_run else [("attempted", "a", 0)]
        assert told == [*step, ("released", "n7", len(step))]
        site.start().step()
        assert site.controls[len(told) :] == site.controls[: len(told)]
