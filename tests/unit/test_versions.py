"""The register of code and configuration: exact versions, forwards and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.versions import OF_JOB_MAX, Register, asked, changed, due, judged, rolled_back, told
from telemetry.actions import Compared, Update

DAY_S = 86_400.0
T = 1_700_000_000.0


def register(*updates: Update) -> Register:
    made = Register()
    for one in updates:
        made.take(one)
    return made


def wish(known: Register, at: float = T, *, urgent: bool = False, **versions: str) -> list[Update]:
    made = asked(known, "7", versions, urgent=urgent, by="otto", note="", now_s=at, forced_s=DAY_S)
    assert not isinstance(made, str), made
    for one in made:
        known.take(one)
    return made


def ran(known: Register, update: Update, at: float) -> Update:
    done = changed(update, "running", "it runs", at, ran_at=at)
    known.take(done)
    return done


def back(known: Register, at: float = T + 50.0) -> list[Update] | str:
    return rolled_back(known, "7", urgent=False, by="otto", note="", now_s=at, forced_s=DAY_S)


def test_an_update_is_what_the_next_restart_runs_and_no_more() -> None:
    known = Register()
    (made,) = wish(known, code="v1")
    assert ("waiting", {"code": "v1"}, {}) == (made.state, made.versions, made.before)
    assert {} == known.running("7")
    assert {"code": "v1"} == known.to_run("7")
    ran(known, made, T + 10.0)
    assert {"code": "v1"} == known.running("7") == known.to_run("7")
    assert known.pending("7") is None


def test_a_rollback_names_the_version_before_it() -> None:
    known = Register()
    for number, code in enumerate(("v1", "v2", "v3")):
        ran(known, wish(known, T + number, code=code)[0], T + number + 0.5)
    made = back(known)
    assert not isinstance(made, str)
    (rollback,) = made
    assert {"code": "v2"} == rollback.versions
    newest = known.newest("7")
    assert newest is not None
    assert newest.id == rollback.undoes
    known.take(rollback)
    ran(known, rollback, T + 60.0)
    assert {"code": "v2"} == known.running("7")


def test_a_rollback_of_one_kind_leaves_the_other() -> None:
    known = Register()
    ran(known, wish(known, code="v1", config="c1")[0], T + 1.0)
    ran(known, wish(known, T + 2.0, config="c2")[0], T + 3.0)
    made = back(known)
    assert not isinstance(made, str)
    assert {"config": "c1"} == made[0].versions
    known.take(made[0])
    assert {"code": "v1", "config": "c1"} == known.to_run("7")


def test_nobody_rolls_back_to_what_nobody_told() -> None:
    known = Register()
    assert "no update of job 7 ever ran: there is nothing to go back to" == back(known)
    ran(known, wish(known, code="v1")[0], T + 1.0)
    said = back(known)
    assert isinstance(said, str)
    assert "nobody told which code job 7 ran before" in said


def test_what_runs_already_can_be_told_without_a_restart() -> None:
    known = Register()
    made = told(known, "7", {"code": "v0"}, by="otto", note="", now_s=T)
    assert not isinstance(made, str)
    known.take(made[0])
    assert {"code": "v0"} == known.running("7")
    assert known.pending("7") is None
    ran(known, wish(known, T + 1.0, code="v1")[0], T + 2.0)
    rollback = back(known)
    assert not isinstance(rollback, str)
    assert {"code": "v0"} == rollback[0].versions


def test_urgent_is_due_now_and_others_after_a_day() -> None:
    known = Register()
    (made,) = wish(known, code="v1")
    assert [] == due(known, T + DAY_S - 1.0)
    assert [made] == due(known, T + DAY_S)
    urgent = Register()
    (now,) = wish(urgent, urgent=True, code="v1")
    assert [now] == due(urgent, T)


def test_a_later_update_takes_the_place_of_one_that_waits_and_keeps_its_day() -> None:
    known = Register()
    (first,) = wish(known, code="v1")
    replaced, second = wish(known, T + 100.0, config="c1")
    assert (first.id, "replaced") == (replaced.id, replaced.state)
    assert {"code": "v1", "config": "c1"} == second.versions
    assert first.forced_at == second.forced_at
    pending = known.pending("7")
    assert pending is not None
    assert second.id == pending.id


def test_while_one_is_under_way_the_next_waits_for_its_end() -> None:
    known = Register()
    (made,) = wish(known, code="v1")
    known.take(changed(made, "joined", "a restart runs it", T + 1.0))
    again = asked(known, "7", {"code": "v2"}, urgent=False, by="x", note="", now_s=T + 2.0,
                  forced_s=DAY_S)  # fmt: skip
    assert isinstance(again, str)
    assert "is under way (joined)" in again


def test_what_runs_already_and_what_is_no_version_are_refused() -> None:
    known = Register()
    ran(known, wish(known, code="v1")[0], T + 1.0)

    def refused(job: str, **versions: str) -> str:
        said = asked(known, job, versions, urgent=False, by="x", note="", now_s=T, forced_s=DAY_S)
        assert isinstance(said, str)
        return said

    assert "job 7 runs that already" == refused("7", code="v1")
    assert "no version is named" == refused("7")
    assert "'$(id)' names no version" in refused("7", code="$(id)")
    assert "'-x' names no version" in refused("7", code="-x")
    assert "'image' is none of code, config" == refused("7", image="v1")
    assert "'../7' is no job's name" == refused("../7", code="v1")


def test_re_run_steps_that_differ_flag_it_and_offer_the_way_back() -> None:
    (made,) = wish(Register(), code="v1")
    same = judged(made, [Compared("loss", 40, 0.001, 0.02)], T + 9.0)
    assert ("matched", "40 steps as before it") == (same.state, same.reason)
    other = judged(
        made, [Compared("loss", 40, 0.5, 0.02), Compared("throughput", 40, 0.0, 0.1)], T + 9.0
    )
    assert "differs" == other.state
    assert "loss by 0.5 (at most 0.02)" in other.reason
    assert "`nodewarden rollback 7`" in other.reason
    assert "unproved" == judged(made, [], T + 9.0).state


WEEK_S = 7 * DAY_S


def days(known: Register, first: int, last: int, running: set[str] | None) -> None:
    """The housekeeping of so many days."""
    for day in range(first, last):
        known.forget(T + day * DAY_S - WEEK_S, running, T + day * DAY_S)


def test_what_a_running_job_runs_is_not_forgotten_however_long_ago_it_was_said() -> None:
    known = Register()
    ran(known, wish(known, code="v1")[0], T + 1.0)
    days(known, 0, 30, {"7"})
    assert {"code": "v1"} == known.running("7")
    days(known, 30, 36, {"8"})  # it waits in the queue
    assert {"code": "v1"} == known.running("7")
    days(known, 36, 40, {"8"})
    assert {} == known.running("7")


def test_what_is_asked_for_and_not_run_yet_is_not_forgotten_either() -> None:
    known = Register()
    wish(known, code="v1")
    days(known, 0, 30, {"7"})
    assert {"code": "v1"} == known.to_run("7")


def test_while_nobody_says_which_jobs_run_nothing_is_forgotten() -> None:
    known = Register()
    ran(known, wish(known, code="v1")[0], T + 1.0)
    days(known, 0, 30, None)
    assert {"code": "v1"} == known.running("7")


def test_an_instance_that_takes_over_does_not_forget_at_once() -> None:
    known = Register()
    ran(known, wish(known, code="v1")[0], T + 1.0)
    days(known, 30, 31, set())
    assert {"code": "v1"} == known.running("7")


def test_many_updates_of_one_kind_do_not_push_out_what_runs_of_the_other() -> None:
    known = Register()
    ran(known, wish(known, config="c1")[0], T + 0.5)
    for number in range(2 * OF_JOB_MAX):
        at = T + 1.0 + number
        ran(known, wish(known, at, code=f"v{number}")[0], at + 0.5)
    assert {"code": f"v{2 * OF_JOB_MAX - 1}", "config": "c1"} == known.running("7")
    assert OF_JOB_MAX == len(known.of("7"))
    made = back(known, T + 1_000.0)
    assert not isinstance(made, str)
    assert {"code": f"v{2 * OF_JOB_MAX - 2}"} == made[0].versions


def test_of_too_many_jobs_the_one_goes_of_which_nothing_was_said_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("actions.versions.JOBS_MAX", 2)
    known = Register()
    for at, job in enumerate(("7", "8", "7", "9")):
        made = told(known, job, {"code": f"v{at}"}, by="otto", note="", now_s=T + at)
        assert not isinstance(made, str)
        known.take(made[0])
    assert [{"code": "v2"}, {}, {"code": "v3"}] == [known.running(job) for job in "789"]


WISHES = st.lists(
    st.tuples(st.sampled_from(["code", "config"]), st.sampled_from(["v1", "v2", "v3"]),
              st.booleans()),
    max_size=12,
)  # fmt: skip


@settings(deadline=None)
@given(WISHES)
def test_the_register_follows_from_its_records_alone(wishes: list[tuple[str, str, bool]]) -> None:
    known, log = Register(), list[Update]()
    for number, (kind, version, runs) in enumerate(wishes):
        at = T + number
        made = asked(known, "7", {kind: version}, urgent=False, by="x", note="", now_s=at,
                     forced_s=DAY_S)  # fmt: skip
        if isinstance(made, str):
            continue
        if runs:
            made.append(changed(made[-1], "running", "", at, ran_at=at))
        for one in made:
            known.take(one)
            log.append(msgspec.json.decode(msgspec.json.encode(one), type=Update))
    again = register(*log, *log)  # told twice it is the same
    assert known.of("7") == again.of("7")
    assert known.running("7") == again.running("7")
    assert known.to_run("7") == again.to_run("7")
    assert 1 >= sum(one.state == "waiting" for one in known.of("7"))
