"""Updates of code and configuration under the service: restarts that run them, and what follows."""

from __future__ import annotations

import msgspec
import pytest

from actions.audit import Auditor
from actions.site import Site as Facts
from telemetry.actions import Command, Compared, Decision, Update, Where
from telemetry.topics import ACTIONS
from tests.acting import allowing, asked
from tests.recovering import JOB, REAL, TARGET, Cluster, broken

DAY_S = 86_400.0


def update(site: Cluster, **changes: object) -> int:
    """The status of a person's request."""
    assert site.instance is not None
    given: dict[str, object] = {"versions": {"code": "v2"}, **changes}
    return site.instance.ask(msgspec.structs.replace(asked("update", JOB), **given)).status


def newest(site: Cluster) -> Update:
    return [one for one in site.records() if isinstance(one, Update)][-1]


def restarts(site: Cluster) -> list[Command]:
    return [
        one for one in site.records() if isinstance(one, Command) and one.step == "restart"
    ]  # fmt: skip


def test_an_update_joins_the_next_failure_restart() -> None:
    site = Cluster()
    site.start()
    assert 200 == update(site)
    site.run_for(60.0)
    assert ("waiting", []) == (newest(site).state, restarts(site))

    site.tell(broken())
    site.run_for(60.0)
    (restart,) = restarts(site)
    assert {"code": "v2"} == restart.versions
    done = newest(site)
    assert ("running", restart.id, restart.decision) == (done.state, done.command, done.decision)
    assert done.joined_at == restart.intent_at
    assert done.ran_at is not None


def test_an_urgent_update_gets_a_restart_of_its_own_at_once() -> None:
    site = Cluster()
    site.start()
    update(site, urgent=True)
    site.run_for(10.0)
    (restart,) = restarts(site)
    assert ({"code": "v2"}, [], JOB) == (restart.versions, restart.targets, restart.job)
    assert "running" == newest(site).state
    decision = next(one for one in site.records() if isinstance(one, Decision))
    assert ("approved", "otto", "planned_update") == (
        decision.state, decision.by, decision.verdict.rung,
    )  # fmt: skip
    assert 1 == site.world.applied["restart"]


def test_an_update_that_joined_nothing_is_forced_after_a_day() -> None:
    site = Cluster()
    site.start()
    update(site)
    assert site.instance is not None
    site.clock.advance(DAY_S - 10.0)
    site.instance.step()
    assert [] == restarts(site)
    site.run_for(30.0)
    assert [{"code": "v2"}] == [one.versions for one in restarts(site)]


def test_a_rollback_runs_the_version_before_it() -> None:
    site = Cluster()
    start = site.start()
    update(site, versions={"code": "v1"}, running=True)
    update(site, urgent=True)
    site.run_for(10.0)
    back = msgspec.structs.replace(asked("rollback", JOB), urgent=True)
    assert 200 == start.ask(back).status
    site.run_for(10.0)
    assert [{"code": "v2"}, {"code": "v1"}] == [one.versions for one in restarts(site)]
    body = start.ask(asked("read", f"versions/{JOB}")).body
    assert ({"code": "v1"}, {"code": "v1"}) == (body["running"], body["next"])
    assert ["unproved", "running", "running"] == [one["state"] for one in body["updates"]]


def test_every_later_restart_runs_what_runs() -> None:
    site = Cluster()
    site.start()
    update(site, urgent=True)
    site.run_for(10.0)
    site.world.job_nodes = [TARGET, "node-b"]
    site.tell(broken())
    site.run_for(60.0)
    assert [{"code": "v2"}] * 2 == [one.versions for one in restarts(site)]


@pytest.mark.parametrize(
    ("compared", "state"),
    [
        ([Compared("loss", 10, 0.0, 0.02)], "matched"),
        ([Compared("loss", 10, 0.5, 0.02)], "differs"),
        ([], "unproved"),
    ],
)
def test_after_the_restart_its_steps_are_compared(compared: list[Compared], state: str) -> None:
    site = Cluster()
    site.start()
    update(site, urgent=True)
    site.run_for(10.0)
    assert "running" == newest(site).state
    site.compared = lambda _update: compared
    again = site.start()  # another instance goes on where it stands
    again.step(3)
    assert (state, compared) == (newest(site).state, newest(site).compared)
    count = len(site.records())
    again.step(5)
    assert count == len(site.records())


def test_in_a_dry_run_nothing_has_run() -> None:
    site = Cluster(msgspec.structs.replace(REAL, dry_run=True))
    site.start()
    update(site, urgent=True)
    site.run_for(30.0)
    assert "failed" == newest(site).state


def test_a_restart_that_does_not_come_about_fails_it() -> None:
    site = Cluster()
    site.world.unsupported = {"in_place", "requeue"}
    site.start()
    update(site, urgent=True)
    site.run_for(200.0)
    assert "failed" == newest(site).state
    assert "its restart:" in newest(site).reason
    assert 200 == update(site)  # and the next can be asked for


def test_while_paused_no_restart_is_ordered() -> None:
    site = Cluster()
    start = site.start()
    start.ask(asked("pause"))
    update(site, urgent=True)
    site.run_for(300.0)
    assert ("waiting", []) == (newest(site).state, restarts(site))
    start.ask(asked("resume", role="admin"))
    site.run_for(10.0)
    assert "running" == newest(site).state


def test_killed_after_its_intent_it_is_run_once() -> None:
    class Power(BaseException):
        """The process is gone."""

    for point in ("restarting.intent.before", "restarting.intent.after", "restarting.act.after"):
        site = Cluster()
        start = site.start()
        start.points[point] = Power()
        with pytest.raises(Power):
            update(site, urgent=True)
        site.start()
        site.run_for(120.0)
        assert ("running", 1) == (newest(site).state, site.world.applied["restart"]), point


def test_who_may_not_is_refused() -> None:
    site = Cluster()
    start = site.start()
    refused = start.ask(msgspec.structs.replace(
        asked("update", JOB, problem="otto is viewer: not enough for update"),
        versions={"code": "v2"},
    ), 403)  # fmt: skip
    assert 403 == refused.status
    assert [] == [one for one in site.records() if isinstance(one, Update)]
    assert 409 == update(site, versions={"code": "a b"})


def test_an_audit_makes_the_restart_of_an_update_again() -> None:
    site = Cluster()
    site.start()
    update(site, urgent=True)
    site.run_for(10.0)
    update(site, versions={"code": "v3"})
    site.clock.advance(DAY_S)
    site.run_for(10.0)
    assert 2 == len(restarts(site))
    auditor = Auditor(lambda _place: None, whole=True, decide=allowing)
    lines = site.log.records((ACTIONS, 0), 0)
    checked = [auditor.take(line.offset, line.value) for line in lines]
    assert ["equal", "equal"] == [one.result for one in checked if one is not None]


def test_a_rollback_that_the_ladder_advises_runs_what_ran_before() -> None:
    site = Cluster()
    site.start()
    update(site, versions={"code": "v1"}, running=True)
    update(site, urgent=True)
    site.run_for(10.0)
    site.tell(broken(action="rollback"))
    site.run_for(60.0)
    assert [{"code": "v2"}, {"code": "v1"}] == [one.versions for one in restarts(site)]
    back = newest(site)
    assert ("running", "nodewarden", {"code": "v1"}) == (back.state, back.by, back.versions)


def test_a_rollback_without_a_version_before_restarts_the_job_as_it_is() -> None:
    site = Cluster()
    site.start()
    site.tell(broken(action="rollback"))
    site.run_for(60.0)
    assert [{}] == [one.versions for one in restarts(site)]
    assert [] == [one for one in site.records() if isinstance(one, Update)]


def test_a_rollback_that_was_not_made_joins_no_later_restart() -> None:
    site = Cluster()
    site.start()
    update(site, versions={"code": "v1"}, running=True)
    update(site, urgent=True)
    site.run_for(10.0)
    site.world.unsupported = {"in_place", "requeue"}
    site.tell(broken(action="rollback"))
    site.run_for(300.0)
    assert ("failed", {"code": "v1"}) == (newest(site).state, newest(site).versions)
    site.world.unsupported = set()
    site.world.job_nodes = [TARGET]
    site.world.job_state = "RUNNING"
    site.tell(broken("b"))
    site.run_for(60.0)
    assert {"code": "v2"} == restarts(site)[-1].versions


def test_what_differs_is_counted_for_the_alert() -> None:
    site = Cluster()
    site.start()
    update(site, urgent=True)
    site.run_for(10.0)
    site.compared = lambda _update: [Compared("loss", 10, 0.5, 0.02)]
    again = site.start()
    again.step(3)
    assert 1.0 == again.metrics.updates.labels("differs")._value.get()
    assert 0.0 == again.metrics.updates.labels("running")._value.get()


def test_what_a_running_job_runs_outlives_what_the_ledger_forgets() -> None:
    site = Cluster()
    site.facts = Facts(places={TARGET: Where(job=JOB)})
    one = site.start()
    update(site, running=True)
    for _ in range(10):
        site.clock.advance(DAY_S)
        one.step()
    assert {"code": "v2"} == one.ledger.versions.running(JOB)
    site.facts = Facts(places={TARGET: Where(job="8")})
    for _ in range(9):
        site.clock.advance(DAY_S)
        one.step()
    assert {} == one.ledger.versions.running(JOB)


def test_what_a_job_runs_goes_with_it_to_its_new_id_and_a_rollback_too() -> None:
    site = Cluster()
    site.world.next_job, site.world.next_state = "8", "RUNNING"
    one = site.start()
    update(site, running=True, versions={"code": "v1", "config": "c1"})
    update(site)
    site.tell(broken())
    site.run_for(30.0)
    register = one.ledger.versions
    assert {"code": "v2", "config": "c1"} == register.running("8")
    assert ("running", "8") == next(
        (said.state, said.next_job) for said in register.of(JOB) if said.command
    )
    back = one.ask(msgspec.structs.replace(asked("rollback", "8"), urgent=False))
    assert 200 == back.status, back.body
    assert {"code": "v1", "config": "c1"} == register.to_run("8")
