"""What is done on Slurm, what is left alone, and what is never done twice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.executors.launch import Launches
from actions.executors.slurm_reason import REASON_MAX, Owned, owned, written
from actions.executors.slurm_resubmit import Resubmitted
from actions.executors.with_launcher import WithLauncher
from telemetry.actions import CommandStep, Preconditions, RestartMode
from telemetry.errors import SourceUnavailable
from telemetry.slurm_words import job_state
from telemetry.testing import ManualClock
from tests.slurm_fake import BOOT_S, FakeSlurm, command, executor

ROOT = Path(__file__).parents[2]
OURS = "nodewarden:gpu_lost:i1"
ISOLATE = command("isolate", "n2")
RELEASE = command("release", "n2", incident="")
RESTART = command("isolate_and_restart", "n2", job="7", preconditions=Preconditions(attempt=0))


def broken_off(slurm: FakeSlurm) -> None:
    """A job runs on the node that has to go."""
    slurm.run("7", "n1", "n2")


# -- nodes


def test_a_node_is_drained_with_a_reason_that_says_whose_it_is() -> None:
    slurm = FakeSlurm()
    done = executor(slurm).execute(ISOLATE)
    assert ("done", f"n2 is drained: {OURS}") == (done.status, done.reason)
    assert [f"drain n2 {OURS}"] == slurm.calls
    assert executor(slurm).achieved(ISOLATE, executor(slurm).observe(["n2"])) is True


def test_a_second_time_nothing_is_done() -> None:
    slurm = FakeSlurm()
    one = executor(slurm)
    assert one.execute(ISOLATE).status == one.execute(ISOLATE).status == "done"
    assert 1 == len(slurm.calls)


def test_several_nodes_go_in_one_call() -> None:
    slurm = FakeSlurm()
    assert executor(slurm).execute(command("isolate", "n1", "n3")).status == "done"
    assert [f"drain n1,n3 {OURS}"] == slurm.calls


@pytest.mark.parametrize(
    "reason", ["ADMIN: fan", f"{OURS} and a fan", "", "nodewarden:x", "NHC: x"]
)
def test_i1_an_admins_drain_is_neither_overwritten_nor_undone(reason: str) -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN", reason, "otto")
    one = executor(slurm)
    assert "refused" == one.execute(ISOLATE).status
    done = one.execute(RELEASE)
    assert ("refused", []) == (done.status, slurm.calls)
    assert "left alone" in done.reason
    assert {"n2": "otto"} == one.observe(["n2"]).owners
    assert one.achieved(ISOLATE, one.observe(["n2"])) is False


def test_i1_a_drain_that_slurm_set_is_left_alone() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN", "Kill task failed", "root")
    assert "refused" == executor(slurm).execute(RELEASE).status
    assert [] == slurm.calls


def test_i1_an_admins_release_of_our_drain_is_seen() -> None:
    slurm = FakeSlurm()
    one = executor(slurm)
    one.execute(ISOLATE)
    slurm.set("n2", "IDLE")
    seen = one.observe(["n2"])
    assert {"n2": ""} == seen.owners
    assert one.achieved(ISOLATE, seen) is False


def test_a_passed_check_gives_back_what_we_drained() -> None:
    slurm = FakeSlurm()
    one = executor(slurm)
    one.execute(ISOLATE)
    assert one.achieved(RELEASE, one.observe(["n2"])) is False
    assert "done" == one.execute(RELEASE).status
    assert one.achieved(RELEASE, one.observe(["n2"])) is True
    assert "done" == one.execute(RELEASE).status
    assert [f"drain n2 {OURS}", "undrain n2"] == slurm.calls


def test_a_release_of_one_incident_does_not_end_the_drain_of_another() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN", "nodewarden:ecc:i9", "root")
    done = executor(slurm).execute(command("release", "n2", incident="i1"))
    assert ("refused", []) == (done.status, slurm.calls)
    assert "done" == executor(slurm).execute(command("release", "n2", incident="i9")).status


def test_a_node_that_failed_is_not_given_back_for_a_drain_of_ours() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN+FAIL", OURS, "root")
    assert "refused" == executor(slurm).execute(RELEASE).status


def test_a_node_that_is_down_for_a_reason_of_others_is_left_alone() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "DOWN", "bad disk", "otto")
    assert "refused" == executor(slurm).execute(ISOLATE).status
    slurm.set("n2", "DOWN+NOT_RESPONDING", "Not responding", "slurm")
    assert "done" == executor(slurm).execute(ISOLATE).status


@pytest.mark.parametrize(
    ("asked", "known"),
    [("n-1-30.local", "n-1-30"), ("n-1-30.", "n-1-30"), ("N-1-30", "n-1-30"),
     ("N-1-30.Local.", "n-1-30"), ("n-1-30.local", "n-1-30.local")],
)  # fmt: skip
def test_i2_a_node_is_found_under_the_name_that_slurm_has_for_it(asked: str, known: str) -> None:
    slurm = FakeSlurm(known, "n-1-3")
    done = executor(slurm).execute(command("isolate", asked))
    assert ("done", [f"drain {known} {OURS}"]) == (done.status, slurm.calls)
    assert {asked: "nodewarden"} == executor(slurm).observe([asked]).owners


def test_i2_where_a_name_may_mean_two_nodes_nothing_is_done() -> None:
    slurm = FakeSlurm("N1", "n1")
    done = executor(slurm).execute(command("isolate", "N1.local"))
    assert ("refused", []) == (done.status, slurm.calls)


@pytest.mark.parametrize("state", ["", "IDLE+DANCING", "UNKNOWN", "WEIRD*"])
def test_i3_with_a_state_that_nobody_knows_nothing_is_done(state: str) -> None:
    slurm = FakeSlurm()
    slurm.set("n2", state)
    assert "refused" == executor(slurm).execute(ISOLATE).status
    slurm.set("n2", f"{state}+DRAIN" if state else "", OURS, "root")
    assert "refused" == executor(slurm).execute(RELEASE).status
    assert [] == slurm.calls


@pytest.mark.parametrize("suffix", list("*~#!%$@^-+"))
def test_i3_a_suffix_hides_no_drain(suffix: str) -> None:
    slurm = FakeSlurm()
    for state in (f"drained{suffix}", f"draining{suffix}", f"IDLE+DRAIN{suffix}"):
        slurm.set("n2", state, "ADMIN", "otto")
        assert {"n2": "otto"} == executor(slurm).observe(["n2"]).owners
        assert "refused" == executor(slurm).execute(ISOLATE).status
    assert [] == slurm.calls


@given(st.text(max_size=2_000), st.text(max_size=2_000))
def test_i4_a_reason_is_one_short_line_without_quotes_and_is_read_back(
    fault: str, incident: str
) -> None:
    text = written("nodewarden", fault, incident)
    assert len(text) <= REASON_MAX
    assert text.isprintable()
    assert not set(text) & set(" '\"\\\n")
    assert owned(text, ["nodewarden"]) is not None


def test_i4_both_sides_drained_by_us_at_once_are_one_drain() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN", "nodewarden:ecc:i9", "root")
    done = executor(slurm).execute(ISOLATE)
    assert ("done", []) == (done.status, slurm.calls)


def test_i5_a_drain_under_an_earlier_prefix_is_ours() -> None:
    slurm = FakeSlurm()
    slurm.set("n2", "IDLE+DRAIN", "warden:gpu_lost:i1", "root")
    assert "refused" == executor(slurm).execute(RELEASE).status
    one = executor(slurm, reason_prefixes_before=["warden"])
    assert {"n2": "nodewarden"} == one.observe(["n2"]).owners
    assert "done" == one.execute(RELEASE).status
    assert Owned("warden", "gpu_lost", "i1") == owned("warden:gpu_lost:i1", ["warden"])


def test_i6_where_slurm_does_not_answer_nothing_is_known_and_nothing_done() -> None:
    slurm = FakeSlurm()
    slurm.away = True
    one = executor(slurm)
    with pytest.raises(SourceUnavailable):
        one.observe(["n2"])
    done = one.execute(ISOLATE)
    assert ("refused", []) == (done.status, slurm.calls)
    assert "nothing was done" in done.reason


def test_a_look_that_fails_at_once_is_made_again_and_a_change_never() -> None:
    slurm = FakeSlurm()
    slurm.blinks = 2
    assert "done" == executor(slurm).execute(ISOLATE).status
    assert 1 == len(slurm.calls)
    slurm.blinks = 3
    with pytest.raises(SourceUnavailable):
        executor(slurm).observe(["n2"])


def test_i7_when_a_node_started_is_part_of_what_it_is() -> None:
    assert {"n2": BOOT_S} == executor(FakeSlurm()).observe(["n2"]).boots


def test_a_lost_reply_is_looked_after_and_the_drain_is_found() -> None:
    slurm = FakeSlurm()
    slurm.silent = True
    assert "done" == executor(slurm).execute(ISOLATE).status
    assert 1 == len(slurm.calls)


def test_a_slurm_that_says_it_did_and_did_not_leaves_an_unknown_outcome() -> None:
    slurm = FakeSlurm()
    slurm.deaf = True
    done = executor(slurm).execute(ISOLATE)
    assert ("unknown", 1) == (done.status, len(slurm.calls))
    assert "n2 is IDLE" in done.reason


def test_no_reply_and_no_drain_is_unknown_and_is_not_tried_again() -> None:
    slurm = FakeSlurm()
    slurm.silent = slurm.deaf = True
    done = executor(slurm).execute(ISOLATE)
    assert ("unknown", 1) == (done.status, len(slurm.calls))


def test_a_refusal_is_a_failure_with_slurms_words() -> None:
    slurm = FakeSlurm()
    slurm.refusal = "Access/permission denied"
    done = executor(slurm).execute(ISOLATE)
    assert "failed" == done.status
    assert "Access/permission denied" in done.reason


def test_a_node_that_is_gone_ends_the_matter() -> None:
    one = executor(FakeSlurm())
    done = one.execute(command("isolate", "n9"))
    assert ("failed", "target gone: Slurm has no node n9") == (done.status, done.reason)
    assert {} == one.observe(["n9"]).states


@pytest.mark.parametrize("name", ["n[1-4]", "n1,n2", "-n1", "", "n1 n2", "ALL;", "n1\n"])
def test_what_is_no_name_of_one_node_is_never_given_to_slurm(name: str) -> None:
    slurm = FakeSlurm()
    assert "refused" == executor(slurm).execute(command("isolate", name)).status
    assert [] == slurm.calls
    assert {} == executor(slurm).observe([name]).states


def test_a_command_of_a_dry_run_is_never_carried_out() -> None:
    slurm = FakeSlurm()
    dry = msgspec.structs.replace(ISOLATE, dry_run=True)
    assert ("refused", []) == (executor(slurm).execute(dry).status, slurm.calls)


# -- jobs


def test_the_job_is_requeued_elsewhere_and_never_starts_where_it_was() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    one = executor(slurm)
    assert one.achieved(RESTART, one.observe(["n2"], "7")) is False
    assert "done" == one.execute(RESTART).status
    assert [f"drain n2 {OURS}", "requeue_hold 7", "exclude 7 n2", "release 7"] == slurm.calls
    seen = one.observe(["n2"], "7")
    assert (1, "RUNNING", ["n1"]) == (seen.attempt, seen.job_state, seen.job_nodes)
    assert one.achieved(RESTART, seen) is True


def test_a_second_time_the_job_is_left_running() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    one = executor(slurm)
    one.execute(RESTART)
    before = list(slurm.calls)
    assert "done" == one.execute(RESTART).status
    assert before == slurm.calls


def test_a_run_after_the_one_that_was_meant_is_not_stopped() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", restarts=3)
    stop = command("restart", job="7", step="stop", preconditions=Preconditions(attempt=2))
    assert ("done", []) == (executor(slurm).execute(stop).status, slurm.calls)


def test_a_job_that_somebody_restarted_elsewhere_is_left_running() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", "n3", restarts=1)
    restart = command("restart", job="7", step="restart", exclude=["n2"])
    assert ("done", []) == (executor(slurm).execute(restart).status, slurm.calls)
    slurm.run("7", "n1", "n2", restarts=1)
    assert ("refused", []) == (executor(slurm).execute(restart).status, slurm.calls)


def test_i11_a_job_whose_owner_asks_for_the_suspect_is_not_stopped() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", "n2", required=("n2",))
    stop = command("restart", job="7", step="stop", exclude=["n2"])
    done = executor(slurm).execute(stop)
    assert ("refused", "job 7 asks for n2 itself", []) == (done.status, done.reason, slurm.calls)


def test_what_was_excluded_before_stays_excluded() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", "n2", excluded=("n4",))
    executor(slurm).execute(RESTART)
    assert "exclude 7 n2,n4" in slurm.calls


def test_nodes_that_were_given_back_are_the_jobs_again() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", "n2", excluded=("n3", "n4"))
    again = msgspec.structs.replace(RESTART, readmit=["n3"])
    assert "done" == executor(slurm).execute(again).status
    assert ("n2", "n4") == slurm.jobs["7"].excluded


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"may_requeue": False}, "allows no requeue"), ({"may_requeue": None}, "allows no requeue"),
     ({"is_batch": False}, "interactive")],
)  # fmt: skip
def test_i11_a_job_that_allows_no_requeue_is_not_requeued(
    changes: dict[str, object], why: str
) -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n1", "n2", **changes)
    stop = command("isolate_and_restart", "n2", job="7", step="stop", mode="requeue")
    done = executor(slurm).execute(stop)
    assert ("refused", []) == (done.status, slurm.calls)
    assert why in done.reason


def test_i11_it_is_cancelled_and_submitted_again_where_the_site_can() -> None:
    slurm, asked = FakeSlurm(), []

    def again(job: str, excluded: Sequence[str], versions: Mapping[str, str]) -> Resubmitted:
        asked.append((job, list(excluded), dict(versions)))
        return Resubmitted("8", "8")

    slurm.run("7", "n1", "n2", may_requeue=False)
    one = executor(slurm, again)
    done = one.execute(msgspec.structs.replace(RESTART, versions={"code": "v2"}))
    assert ("done", "8") == (done.status, done.next_job)
    assert "job 7 is submitted again, without n2: as 8" in done.reason
    assert [f"drain n2 {OURS}", "cancel 7"] == slurm.calls
    assert [("7", ["n2"], {"code": "v2"})] == asked
    assert one.achieved(RESTART, one.observe(["n2"], "7")) is None


def test_i11_a_submission_that_nobody_answers_is_unknown() -> None:
    def again(job: str, excluded: Sequence[str], versions: Mapping[str, str]) -> Resubmitted:
        raise SourceUnavailable("resubmit: is not done in time")

    slurm = FakeSlurm()
    slurm.run("7", "n2", may_requeue=False)
    assert "unknown" == executor(slurm, again).execute(RESTART).status


def test_i11_the_job_never_gets_the_suspects_again() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    executor(slurm).execute(RESTART)
    assert ("n2",) == slurm.jobs["7"].excluded


def test_where_the_exclusion_is_not_taken_the_job_stays_held() -> None:
    slurm = FakeSlurm()
    slurm.run("7", state=job_state(["PENDING"]), is_held=True, restarts=1)
    slurm.deaf = True
    restart = command("isolate_and_restart", "n2", job="7", step="restart", exclude=["n2"])
    assert "unknown" == executor(slurm).execute(restart).status
    assert ["exclude 7 n2"] == slurm.calls


def test_a_job_that_does_not_stop_completing_is_not_started_again() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n2", state=job_state(["COMPLETING"]))
    done = executor(slurm).execute(command("restart", job="7", step="restart"))
    assert ("failed", []) == (done.status, slurm.calls)


def test_a_drain_that_fails_stops_what_would_follow() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    slurm.set("n2", "ALLOCATED+DRAIN", "ADMIN", "otto")
    assert "refused" == executor(slurm).execute(RESTART).status
    assert [] == slurm.calls


@pytest.mark.parametrize("mode", ["partial", "in_place", "replacement"])
def test_a_restart_within_the_allocation_is_not_slurms(mode: str) -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    stop = command("restart", job="7", step="stop", mode=mode)
    assert ("refused", []) == (executor(slurm).execute(stop).status, slurm.calls)


def test_a_lost_reply_to_a_requeue_is_looked_after() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    slurm.silent = True
    assert "done" == executor(slurm).execute(RESTART).status
    assert 4 == len(slurm.calls)


def test_a_slurm_that_lies_about_a_requeue_is_not_asked_again() -> None:
    slurm = FakeSlurm()
    broken_off(slurm)
    slurm.deaf = True
    stop = command("restart", job="7", step="stop", preconditions=Preconditions(attempt=0))
    assert "unknown" == executor(slurm).execute(stop).status
    assert ["requeue_hold 7"] == slurm.calls
    assert executor(slurm).achieved(stop, executor(slurm).observe([], "7")) is False


@pytest.mark.parametrize("job", ["", "train-1", "7+1", "7_[1-3]", "-7", "7 8"])
def test_what_is_no_job_of_slurms_is_refused(job: str) -> None:
    slurm = FakeSlurm()
    stop = command("restart", job=job, step="stop")
    assert ("refused", []) == (executor(slurm).execute(stop).status, slurm.calls)
    assert "" == executor(slurm).observe([], job).job_state


def test_a_job_that_is_gone_runs_nowhere_and_comes_not_back() -> None:
    slurm = FakeSlurm()
    assert "done" == executor(slurm).execute(command("restart", job="7", step="stop")).status
    assert "failed" == executor(slurm).execute(command("restart", job="7", step="restart")).status


def test_slurm_cleans_by_itself_and_is_done_when_nothing_completes() -> None:
    slurm = FakeSlurm()
    clean = command("restart", job="7", step="clean", mode="requeue")
    slurm.run("7", "n2", state=job_state(["COMPLETING"]))
    one = executor(slurm)
    assert "done" == one.execute(clean).status
    assert one.achieved(clean, one.observe([], "7")) is False
    slurm.run("7", state=job_state(["PENDING"]), is_held=True)
    assert one.achieved(clean, one.observe([], "7")) is True


def test_a_held_job_says_so() -> None:
    slurm = FakeSlurm()
    slurm.run("7", state=job_state(["PENDING"]), is_held=True)
    assert "PENDING+HELD" == executor(slurm).observe([], "7").job_state


def test_i8_nothing_on_a_node_gives_slurm_commands() -> None:
    """Neither the agent nor prolog and epilog; that collectors know no executor, the rules of
    imports say.
    """
    changes = re.compile(r"scontrol[\"', ]+(?:update|requeue|release|reboot)|scancel|state=drain")
    places = [
        *(ROOT / "collectors" / "agent").rglob("*.py"),
        *(ROOT / "deploy" / "slurm").glob("*.sh"),
    ]
    assert 10 < len(places)
    assert [] == [path for path in places if changes.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("how", ["", "COMPLETED", "TIMEOUT", "CANCELLED"])
def test_a_job_that_ended_by_itself_or_nobody_knows_how_is_not_submitted_again(how: str) -> None:
    slurm, asked = FakeSlurm(), list[str]()
    if how:
        slurm.run("7", state=job_state([how]), may_requeue=False)

    def again(job: str, excluded: Sequence[str], versions: Mapping[str, str]) -> Resubmitted:
        asked.append(job)
        return Resubmitted("8", "8")

    done = executor(slurm, again).execute(RESTART)
    assert done.status in ("refused", "failed")
    assert [] == asked


def test_an_interactive_job_is_not_cancelled_for_nobody_can_start_it_again() -> None:
    slurm = FakeSlurm()
    slurm.run("7", "n2", is_batch=False)
    done = executor(slurm, lambda *_: Resubmitted("8", "8")).execute(RESTART)
    assert "refused" == done.status
    assert "cancel 7" not in slurm.calls


@pytest.mark.parametrize("job", ["llm-70b", "", "0", "7\n", "-1", "7+0"])
@pytest.mark.parametrize("step", ["", "stop", "clean", "restart"])
@pytest.mark.parametrize("mode", [None, "in_place", "requeue"])
def test_a_job_that_is_none_of_slurms_is_refused_and_ends_nobody(
    job: str, step: CommandStep | Literal[""], mode: RestartMode | None
) -> None:
    slurm, clock = FakeSlurm(), ManualClock()
    launches = Launches(Path("/nonexistent"), lambda _job: "", clock, 1.0)
    for does in (executor(slurm), WithLauncher(executor(slurm), launches, clock)):
        one = command("restart", job=job, step=step, mode=mode)
        assert does.achieved(one, does.observe([], job)) is False
        assert "refused" == does.execute(one).status
    assert [] == slurm.calls
