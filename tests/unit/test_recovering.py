"""A job that is brought back by the active instance: each step once, whatever happens to whom."""

from __future__ import annotations

import runpy
from pathlib import Path

import msgspec
import pytest

from actions.ports import JobFacts
from actions.recovery import picture
from nodewarden.commands.show import _events
from telemetry.actions import Command, Decision, Outcome, Recovery, command_id
from tests.acting import asked
from tests.recovering import JOB, REAL, TARGET, Cluster, broken

WHOLE = ["suspect", "stopping", "cleaning", "replacing", "restarting", "running"]
POINTS = [f"{state}.{what}.{when}"
          for state in ("suspect", "stopping", "cleaning", "restarting")
          for what in ("intent", "act", "outcome") for when in ("before", "after")]  # fmt: skip
PASSES = [f"{state}.pass.{when}"
          for state in ("begin", "suspect", "stopping", "cleaning", "replacing", "restarting")
          for when in ("before", "after")]  # fmt: skip
FACTS = JobFacts()


class Power(BaseException):
    """The process is gone."""


def test_a_restart_goes_from_state_to_state_with_one_intent_each() -> None:
    site = Cluster()
    site.tell(broken())
    site.start().step(3)
    assert site.states() == WHOLE
    assert site.steps() == ["drain", "stop", "clean", "restart"]
    commands = [one for one in site.records() if isinstance(one, Command)]
    assert [one.id for one in commands] == [
        command_id(commands[0].decision, one.step, 0) for one in commands
    ]
    assert [one.exclude for one in commands] == [[TARGET]] * 4
    assert {one.mode for one in commands[1:]} == {"partial"}
    assert site.pages.pages() == []


def test_the_state_stands_in_the_log_with_the_command_and_the_outcome_it_belongs_to() -> None:
    site = Cluster()
    site.tell(broken())
    site.start().step(3)
    records = [one for one in site.records() if isinstance(one, Command | Outcome | Recovery)]
    for place, one in enumerate(records):
        if isinstance(one, Command):
            before = records[place - 1]
            assert isinstance(before, Recovery)
            assert before.command == one.id
        if isinstance(one, Outcome):
            after = records[place + 1]
            assert isinstance(after, Recovery)
            assert after.answered == "done"


@pytest.mark.parametrize("point", POINTS + PASSES)
def test_killed_in_any_state_there_is_one_drain_and_one_restart(point: str) -> None:
    site = Cluster()
    site.settings = msgspec.structs.replace(
        REAL, recovery=msgspec.structs.replace(REAL.recovery, modes=("requeue",))
    )
    site.tell(broken())
    first = site.start()
    first.points[point] = Power()
    with pytest.raises(Power):
        first.step(3)
    second = site.start()
    second.step(2)
    site.run_for(REAL.act_within_s + REAL.call_timeout_s + 10.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert {step: site.world.applied[step] for step in ("drain", "stop", "restart")} == {
        "drain": 1, "stop": 1, "restart": 1,
    }  # fmt: skip
    assert len(site.steps()) == len(set(site.steps())) == 4
    assert len([one for one in site.records() if isinstance(one, Outcome)]) == 4
    assert site.pages.pages() == []


@pytest.mark.parametrize("step", ["drain", "stop", "clean", "restart"])
def test_a_reply_that_is_lost_is_read_back_and_nothing_is_done_again(step: str) -> None:
    site = Cluster()
    site.world.behaves[step] = ["lost"]
    site.tell(broken())
    site.start()
    site.run_for(10.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.world.applied[step] == 1
    assert "no answer" in " ".join(
        one.reason for one in site.records() if isinstance(one, Recovery) and one.answered
    )


@pytest.mark.parametrize("step", ["drain", "stop", "clean", "restart"])
def test_h3_what_is_done_late_after_no_answer_is_done_once(step: str) -> None:
    site = Cluster()
    site.world.behaves[step] = ["hangs"]
    site.tell(broken())
    site.start()
    site.run_for(40.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.world.applied[step] == 1


@pytest.mark.parametrize("how", ["lies", "dies"])
@pytest.mark.parametrize("step", ["drain", "stop", "clean", "restart"])
def test_a_scheduler_that_does_nothing_is_a_person_s_in_time_and_is_called_once(
    step: str, how: str
) -> None:
    site = Cluster()
    site.world.behaves[step] = [how]  # type: ignore[list-item]
    site.tell(broken())
    site.start()
    site.run_for(1_000.0, 10.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert sum(one.step == step for one in site.world.calls) == 1
    assert site.world.applied[step] == 0
    (page,) = site.pages.pages()
    assert f"job {JOB} is a person's now" in page
    assert "is not seen to be done" in page
    site.run_for(2_000.0, 100.0)
    assert sum(one.step == step for one in site.world.calls) == 1


@pytest.mark.parametrize("step", ["drain", "stop", "clean", "restart"])
def test_h3_what_nobody_can_read_back_is_a_person_s_at_once(step: str) -> None:
    site = Cluster()
    site.tell(broken())
    one = site.start()
    site.world.behaves[step] = ["lost"]
    site.world.readable = False
    one.step(3)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "nobody can tell" in site.pages.pages()[0]
    assert site.world.applied[step] == 1


def test_a_mode_that_is_not_supported_falls_back_to_the_next_with_its_reason() -> None:
    site = Cluster()
    site.world.unsupported = {"partial", "in_place", "replacement"}
    site.tell(broken())
    site.start().step(4)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.mode) == ("running", "requeue")
    modes = [one.mode for one in site.world.calls if one.step == "stop"]
    assert modes == ["partial", "in_place", "replacement", "requeue"]
    why = [one.reason for one in recovery.history]
    assert why.count("partial is not supported") == 1
    assert site.world.applied["restart"] == 1


def test_where_no_mode_is_left_a_person_is_paged() -> None:
    site = Cluster()
    site.world.unsupported = {"partial", "in_place", "replacement", "requeue"}
    site.tell(broken())
    site.start()
    site.run_for(80.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "no other way of restarting is left" in site.pages.pages()[0]


def test_a_refusal_that_passes_is_asked_again_where_no_other_mode_is_left() -> None:
    site = Cluster(msgspec.structs.replace(
        REAL, recovery=msgspec.structs.replace(REAL.recovery, modes=("requeue",))
    ))  # fmt: skip
    site.world.behaves = {"drain": ["refuses"], "restart": ["refuses", "refuses"]}
    site.tell(broken())
    site.start()
    site.run_for(40.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.steps() == ["drain", "drain", "stop", "clean", "restart", "restart", "restart"]
    assert site.world.applied["restart"] == 1


def test_i1_a_drain_that_is_refused_again_and_again_is_a_person_s_and_stops_nothing() -> None:
    site = Cluster()
    site.world.behaves["drain"] = ["refuses"] * 9
    site.tell(broken())
    site.start()
    site.run_for(100.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert site.steps() == ["drain"] * REAL.recovery.tries_max
    assert site.world.applied["stop"] == 0


def test_a_restart_that_fails_for_certain_is_made_in_the_next_mode() -> None:
    site = Cluster()
    site.world.behaves["restart"] = ["fails"]
    site.tell(broken())
    site.start().step(4)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.mode) == ("running", "in_place")
    assert site.world.applied["restart"] == 1


def test_a_requeue_whose_executor_cleans_nothing_goes_on_for_the_scheduler_does() -> None:
    site = Cluster(msgspec.structs.replace(
        REAL, recovery=msgspec.structs.replace(REAL.recovery, modes=("requeue",))
    ))  # fmt: skip
    site.world.behaves["clean"] = ["refuses"]
    site.tell(broken())
    site.start().step(4)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_a_restart_without_targets_drains_nobody_and_knows_two_modes() -> None:
    site = Cluster()
    site.world.unsupported = {"in_place"}
    site.tell(broken(action="restart"))
    site.start().step(4)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.mode) == ("running", "requeue")
    assert "drain" not in site.steps()


def test_it_runs_again_when_the_scheduler_says_so_and_not_before() -> None:
    site = Cluster()
    site.world.starts_in_s = 60.0
    site.tell(broken())
    site.start()
    site.run_for(50.0)
    assert [one.state for one in site.recoveries()] == ["restarting"]
    site.run_for(20.0)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_a_job_that_never_runs_again_is_a_person_s() -> None:
    site = Cluster()
    site.world.starts_in_s = 1e6
    site.tell(broken())
    site.start()
    site.run_for(REAL.recovery.restart_s + 20.0, 10.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "the job does not run" in site.pages.pages()[0]
    assert site.world.applied["restart"] == 1


# -- when it is time


def test_a_slow_node_is_drained_at_once_and_its_job_stopped_at_the_next_checkpoint() -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(60.0)
    assert site.steps() == ["drain"]
    at = site.clock.time_s()
    site.job = lambda job: msgspec.structs.replace(FACTS, checkpoint_at=at)
    site.start()
    site.run_for(10.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.world.applied["restart"] == 1


def test_a_checkpoint_that_never_comes_is_a_person_s() -> None:
    site = Cluster()
    site.job = lambda job: msgspec.structs.replace(FACTS, checkpoint_at=1.0)
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(REAL.recovery.checkpoint_s + 100.0, 50.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert site.steps() == ["drain"]
    assert "no checkpoint" in site.pages.pages()[0]


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_the_exit_of_a_process_and_a_communication_time_out_end_every_waiting(how: str) -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    one = site.start()
    site.run_for(20.0)
    if how == "exit":
        site.world.job_state = "FAILED"
    else:
        site.tell(broken("h", action="none", kind="job_hang"))
    one.step()
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert recovery.state == "running"
    assert site.world.applied["restart"] == 1
    said = "a process of the job exited" if how == "exit" else "communication timed out"
    assert any(said in passed.reason for passed in recovery.history)


def test_a_job_whose_end_is_waited_for_is_not_restarted_after_it() -> None:
    site = Cluster()
    site.tell(broken(when="at_job_end"))
    site.start()
    site.run_for(7_200.0, 600.0)
    assert [one.state for one in site.recoveries()] == ["suspect"]
    site.world.job_state = "COMPLETED"
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert site.steps() == ["drain"]


@pytest.mark.parametrize("free", [None, 0])
def test_h18_a_job_that_progresses_is_not_killed_unless_replacements_exist(
    free: int | None,
) -> None:
    site = Cluster()
    site.job = lambda job: msgspec.structs.replace(FACTS, progresses=True, replacements=free)
    site.tell(broken())
    site.start()
    site.run_for(REAL.recovery.now_s + 10.0)
    assert site.steps() == ["drain"]
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "the job progresses" in site.pages.pages()[0]
    assert site.world.applied["stop"] == 0


def test_while_more_of_the_job_is_known_in_a_moment_it_is_not_stopped() -> None:
    site = Cluster()
    site.job = lambda job: msgspec.structs.replace(FACTS, pending=True)
    site.tell(broken())
    site.start()
    site.run_for(10.0)
    assert site.steps() == ["drain"]
    site.world.job_state = "FAILED"
    site.run_for(10.0)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_h18_with_replacements_a_job_that_progresses_is_restarted_on_them() -> None:
    site = Cluster()
    site.job = lambda job: msgspec.structs.replace(FACTS, progresses=True, replacements=1)
    site.tell(broken())
    site.start().step(3)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_h1_an_incident_that_closed_while_it_waited_stops_nothing() -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(10.0)
    site.tell(broken(when="at_checkpoint", rev=1, closed_at=site.clock.time_s()))
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert "closed" in recovery.reason
    assert site.world.applied["stop"] == 0


def test_i1_a_person_who_gives_the_node_back_while_it_waits_ends_it() -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    one = site.start()
    site.run_for(10.0)
    assert one.ask(asked("release", TARGET)).status == 200
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert recovery.reason == f"a person gave {TARGET} back"
    assert site.world.applied["stop"] == 0
    assert site.pages.pages() == []


def test_an_incident_that_closes_after_the_stop_leaves_no_job_stopped() -> None:
    site = Cluster()
    site.world.behaves["stop"] = ["hangs"]
    site.tell(broken())
    site.start()
    site.run_for(6.0)
    site.tell(broken(rev=1, closed_at=site.clock.time_s()))
    site.run_for(40.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.world.applied["restart"] == 1


def test_i11_a_job_that_somebody_else_restarted_is_not_restarted_again() -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(10.0)
    site.world.run = 1
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert "somebody else restarted the job" in recovery.reason


def test_h4_of_two_faulty_nodes_of_a_job_both_go_and_it_is_restarted_once() -> None:
    site = Cluster()
    site.world.starts_in_s = 30.0
    site.tell(broken("a"), broken("b"))
    site.start()
    site.run_for(60.0)
    assert [one.state for one in site.recoveries()] == ["running", "running"]
    assert site.world.applied["drain"] == 2
    assert site.world.applied["restart"] == 1


def test_a_job_that_moved_away_from_the_target_by_itself_is_left_alone() -> None:
    site = Cluster()
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(10.0)
    site.world.job_nodes = ["node-x", "node-y"]
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert recovery.reason == "the job no longer runs on any of the targets"


@pytest.mark.parametrize("how", ["merged", "no longer says it"])
def test_h1_a_retry_that_the_ladder_no_longer_wants_stops_nothing(how: str) -> None:
    site = Cluster()
    story = broken(action="restart", when="at_checkpoint")
    site.tell(story)
    site.start()
    site.run_for(10.0)
    later = msgspec.structs.replace(story.verdict, action="none", at=story.verdict.at + 1.0)
    site.tell(msgspec.structs.replace(story, rev=1, **(
        {"merged_into": "b"} if how == "merged" else {"verdicts": [story.verdict, later]}
    )))  # fmt: skip
    site.run_for(10.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert how in recovery.reason
    assert site.steps() == []


def test_a_job_that_somebody_restarts_between_intent_and_stop_is_left_alone() -> None:
    site = Cluster()
    site.tell(broken())
    one = site.start()
    one.points["stopping.intent.after"] = lambda: setattr(site.world, "run", 1)
    one.step(3)
    site.run_for(20.0)
    (recovery,) = site.recoveries()
    assert (recovery.state, recovery.stopped) == ("running", False)
    assert "somebody else restarted the job" in recovery.reason
    refused = [o for o in site.records() if isinstance(o, Outcome) and o.status == "refused"]
    assert ["job 7 runs attempt 1 instead of 0"] == [o.reason for o in refused]
    assert site.world.applied["stop"] == 0


# -- people, and what a check says


def test_rails_that_say_no_hold_the_stop_and_let_it_go_on_when_they_pass() -> None:
    site = Cluster()
    says = ["fresh telemetry: 90 s old"]

    def rails(decision: Decision, *_rest: object) -> Decision:
        begun = decision.expires_at is None
        if not (begun and says):
            return decision
        return msgspec.structs.replace(decision, state="refused", reason=says[0])

    site.recheck = rails
    site.tell(broken(when="at_checkpoint"))
    site.start()
    site.run_for(20.0)
    assert site.steps() == []
    says.clear()
    site.run_for(20.0)
    assert site.steps() == ["drain"]
    says.append("breaker: it is open")
    site.job = lambda job: msgspec.structs.replace(FACTS, checkpoint_at=site.clock.time_s())
    site.start()
    site.run_for(20.0)
    assert site.steps() == ["drain"]
    says.clear()
    site.run_for(20.0)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_rails_that_go_on_saying_no_are_a_person_s_with_their_reason() -> None:
    site = Cluster()

    def rails(decision: Decision, *_rest: object) -> Decision:
        if decision.expires_at is not None:
            return decision
        return msgspec.structs.replace(decision, state="refused", reason="breaker: it is open")

    site.recheck = rails
    site.tell(broken())
    site.start()
    site.run_for(REAL.recovery.now_s + 10.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "breaker: it is open" in site.pages.pages()[0]


@pytest.mark.parametrize("back", [True, False])
def test_h3_a_call_of_a_dead_instance_that_nobody_can_look_at_is_not_called_undone(
    back: bool,
) -> None:
    site = Cluster()
    site.tell(broken())
    first = site.start()
    first.points["stopping.act.after"] = Power()
    with pytest.raises(Power):
        first.step(3)
    site.world.away = True
    site.start()
    site.run_for(60.0)
    assert len([one for one in site.records() if isinstance(one, Outcome)]) == 1
    site.world.away = not back
    site.run_for(300.0)
    assert [one.state for one in site.recoveries()] == ["running" if back else "escalated"]
    assert site.world.applied["stop"] == 1
    last = [one.status for one in site.records() if isinstance(one, Outcome)]
    assert last == (["done"] * 4 if back else ["done", "unknown"])


def test_a_pause_holds_it_between_two_steps_and_a_resume_lets_it_go_on() -> None:
    site = Cluster()
    site.world.behaves["stop"] = ["hangs"]
    site.tell(broken())
    one = site.start()
    one.step(2)
    assert one.ask(asked("pause")).status == 200
    site.run_for(60.0)
    assert [one.state for one in site.recoveries()] == ["cleaning"]
    assert site.steps() == ["drain", "stop"]
    assert one.ask(asked("resume", role="admin")).status == 200
    site.run_for(10.0)
    assert [one.state for one in site.recoveries()] == ["running"]


def test_a_pause_that_outlasts_a_state_pages_for_the_job_stands() -> None:
    site = Cluster()
    site.world.behaves["stop"] = ["hangs"]
    site.tell(broken())
    one = site.start()
    one.step(2)
    one.ask(asked("pause"))
    site.run_for(200.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert "a person paused everything" in site.pages.pages()[0]


def test_an_act_that_comes_too_late_gets_a_new_intent_and_never_without_end() -> None:
    site = Cluster()
    site.tell(broken())
    one = site.start()
    one.points["stopping.act.before"] = 5.5
    site.run_for(20.0)
    assert [one.state for one in site.recoveries()] == ["running"]
    assert site.steps() == ["drain", "stop", "stop", "clean", "restart"]
    stops = [one for one in site.records() if isinstance(one, Command) and one.step == "stop"]
    assert stops[0].id != stops[1].id
    assert site.world.applied["stop"] == 1


def test_a_scheduler_that_is_away_from_the_start_sees_no_intent() -> None:
    site = Cluster()
    site.world.away = True
    site.tell(broken())
    site.start()
    site.run_for(REAL.command_s + 10.0)
    assert site.recoveries() == []
    assert site.steps() == []


def test_a_scheduler_that_goes_away_between_stop_and_restart_pages_in_time() -> None:
    site = Cluster()
    site.tell(broken())
    one = site.start()
    one.points["stopping.outcome.after"] = Power()
    with pytest.raises(Power):
        one.step(3)
    site.world.away = True
    site.start()
    site.run_for(REAL.recovery.stop_s + 10.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert len(site.pages.pages()) == 1
    assert site.steps() == ["drain", "stop"]


def test_a_page_is_over_when_a_person_acknowledges_the_incident() -> None:
    site = Cluster()
    site.world.unsupported = {"partial", "in_place", "replacement", "requeue"}
    site.tell(broken())
    one = site.start()
    site.run_for(80.0)
    assert len(site.pages.pages()) == 1
    assert one.metrics.escalations._value.get() == 1
    site.clock.advance(1.0)
    one.ask(asked("ack", "a"))
    one.step()
    assert site.pages.pages() == []
    assert one.metrics.escalations._value.get() == 0


def test_a_page_is_said_again_by_whoever_takes_over_before_anybody_was_told() -> None:
    site = Cluster()
    site.world.unsupported = {"partial", "in_place", "replacement", "requeue"}
    site.tell(broken())
    first = site.start()
    site.run_for(50.0)
    first.points["stopping.outcome.after"] = Power()
    with pytest.raises(Power):
        site.run_for(40.0)
    assert [one.state for one in site.recoveries()] == ["escalated"]
    assert site.pages.pages() == []
    site.start().step()
    assert len(site.pages.pages()) == 1


def test_an_isolation_of_which_nobody_can_tell_is_a_person_s() -> None:
    site = Cluster()
    site.world.behaves[""] = ["dies"]
    site.tell(broken(action="isolate"))
    one = site.start()
    one.step(2)
    (page,) = site.pages.pages()
    assert "nobody can tell whether it was done: isolate node-a" in page
    site.clock.advance(1.0)
    one.ask(asked("ack", "a"))
    one.step()
    assert site.pages.pages() == []


def test_people_hear_that_in_time_nothing_was_done() -> None:
    site = Cluster()
    site.world.away = True
    site.tell(broken())
    site.start()
    site.run_for(REAL.command_s + 10.0)
    assert site.pages.states == {"a": ["approved", "expired"]}


def test_a_dry_run_goes_through_all_states_waits_for_nothing_and_pages_nobody() -> None:
    site = Cluster(msgspec.structs.replace(REAL, dry_run=True))
    site.tell(broken(when="at_checkpoint"))
    site.start().step(4)
    assert site.states() == WHOLE
    assert all(one.dry_run for one in site.records() if isinstance(one, Command))
    assert site.pages.pages() == []


def submitted_again(*, starts: bool = True) -> Cluster:
    """The job was cancelled, and waits in the queue as 8."""
    site = Cluster()
    site.world.next_job = "8"
    site.tell(broken())
    site.start().step(3)
    assert [("restarting", "8", "taken")] == [
        (one.state, one.next_job, one.reason) for one in site.recoveries()
    ]
    if starts:
        site.world.next_state = "RUNNING"
    return site


def test_a_job_that_was_submitted_again_is_back_when_it_runs_under_its_new_id() -> None:
    site = submitted_again(starts=False)
    site.run_for(60.0)
    assert "restarting" == site.recoveries()[0].state
    site.world.next_state = "RUNNING"
    site.run_for(10.0)
    (done,) = site.recoveries()
    assert ("running", "the job runs; taken") == (done.state, done.reason)
    assert (JOB, "8", "8") == (done.job, done.next_job, done.job_now)
    assert 1 == site.world.applied["restart"]


@pytest.mark.parametrize("state", ["PENDING", "FAILED", "CANCELLED", ""])
def test_a_new_job_that_never_runs_is_a_person_s(state: str) -> None:
    site = submitted_again(starts=False)
    site.world.next_state = state
    site.run_for(REAL.recovery.restart_s + 20.0, 10.0)
    assert "escalated" == site.recoveries()[0].state
    (page,) = site.pages.pages()
    assert page.startswith(f"job 8 (before {JOB}) is a person's now")
    assert 1 == site.world.applied["restart"]


def test_a_new_job_that_got_the_suspect_again_is_not_back() -> None:
    site = submitted_again()
    site.world.next_nodes = [TARGET]
    site.run_for(60.0)
    assert "restarting" == site.recoveries()[0].state


def test_an_instance_that_takes_over_follows_the_new_job() -> None:
    site = submitted_again(starts=False)
    site.start()
    site.run_for(60.0)
    assert "restarting" == site.recoveries()[0].state
    site.world.next_state = "RUNNING"
    site.run_for(10.0)
    assert "running" == site.recoveries()[0].state


def test_what_is_decided_of_the_new_job_waits_until_it_is_back() -> None:
    site = submitted_again(starts=False)
    story = broken("b")
    verdict = msgspec.structs.replace(story.verdict, targets=["node-b"])
    site.tell(msgspec.structs.replace(story, job="8", verdict=verdict, verdicts=[verdict]))
    site.run_for(20.0)
    assert ["restarting", "suspect"] == [one.state for one in site.recoveries()]
    assert 1 == site.world.applied["stop"]


def test_people_see_how_far_it_is() -> None:
    site = Cluster()
    site.world.starts_in_s = 60.0
    site.tell(broken())
    one = site.start()
    one.step(3)
    shown = one.ask(asked("read", "incidents/a")).body
    assert [found["state"] for found in shown["recoveries"]] == ["restarting"]
    assert [found["step"] for found in shown["commands"]] == ["drain", "stop", "clean", "restart"]
    assert one.ask(asked("read", "recoveries")).body["recoveries"] == shown["recoveries"]
    assert one.metrics.recoveries.labels("restarting")._value.get() == 1


def test_show_tells_each_state_in_words() -> None:
    site = Cluster()
    site.world.unsupported = {"partial"}
    site.tell(broken())
    one = site.start()
    one.step(3)
    body = one.ask(asked("read", "incidents/a")).body
    words = [line for _, line in sorted(_events(body), key=lambda event: event[0])]
    assert [line for line in words if line.startswith("job ")] == [
        f"job {JOB} suspect: at once",
        f"job {JOB} stopping: partial is not supported",
        f"job {JOB} stopping: taken",
        f"job {JOB} cleaning: taken",
        f"job {JOB} replacing: not needed for in_place",
        f"job {JOB} restarting: the job runs; taken",
        f"job {JOB} RUNNING: the job runs; taken",
    ]
    assert any("[stop in_place node-a]" in line for line in words)


def test_the_page_of_the_states_is_made_from_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m actions.recovery.picture > docs/recovery.md` makes it."""
    runpy.run_path(picture.__file__, run_name="__main__")

    page = Path(__file__).parents[2] / "docs" / "recovery.md"
    assert page.read_text(encoding="utf-8") == capsys.readouterr().out
