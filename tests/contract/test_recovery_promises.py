"""Whatever the scheduler, the power and people do: no act twice, and every recovery has an end.

A hypothesis machine drives the real active instance over a log in memory: calls that are lost, hang
and are done later, lie, are refused or fail; a scheduler that is away; instances that die at any
named point of the work; people who pause; stories that close.
"""

from __future__ import annotations

from typing import get_args

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actions.ports import JobFacts
from telemetry.actions import Command, Outcome, RecoveryState
from telemetry.findings import When
from tests.acting import asked
from tests.recovering import JOB, REAL, TARGET, Behaviour, Cluster, broken

STEPS = ("drain", "stop", "clean", "replace", "restart")
PLACES = (*get_args(RecoveryState), "begin")
WORK = ("intent", "act", "outcome", "pass")
POINTS = [f"{place}.{what}.{when}" for place in PLACES
          for what in WORK for when in ("before", "after")]  # fmt: skip
END_S = 3.0 * REAL.recovery.checkpoint_s


class Power(BaseException):
    """The process is gone."""


class Promises(RuleBasedStateMachine):
    """See above."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Cluster()
        self.revision = 0
        self.when: When = "now"

    @initialize(
        when=st.sampled_from(["now", "at_checkpoint"]),
        unsupported=st.sets(st.sampled_from(["partial", "in_place", "replacement"])),
        starts_in_s=st.sampled_from([0.0, 30.0, 1e6]),
    )
    def begins(self, when: When, unsupported: set[str], starts_in_s: float) -> None:
        self.when = when
        self.site.world.unsupported = unsupported
        self.site.world.starts_in_s = starts_in_s
        self.site.tell(broken(when=when))
        self.site.start()

    # -- what may happen

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0, 40.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self._works()
        self.site.clock.advance(seconds)
        self._works()

    @rule(
        step=st.sampled_from(STEPS),
        hows=st.lists(st.sampled_from(get_args(Behaviour)), min_size=1, max_size=3),
    )
    def calls_go_wrong(self, step: str, hows: list[Behaviour]) -> None:
        self.site.world.behaves[step] = hows

    @rule(away=st.booleans())
    def the_scheduler_goes_and_comes(self, away: bool) -> None:
        self.site.world.away = away

    @rule(point=st.sampled_from(POINTS))
    def the_power_fails_at(self, point: str) -> None:
        assert self.site.instance is not None
        self.site.instance.points[point] = Power()

    @rule(point=st.sampled_from(POINTS), seconds=st.sampled_from([1.0, 5.5, 60.0]))
    def the_process_is_stopped_at(self, point: str, seconds: float) -> None:
        assert self.site.instance is not None
        self.site.instance.points[point] = seconds

    @rule()
    def another_instance_takes_over(self) -> None:
        self.site.start()

    @rule(pauses=st.booleans())
    def a_person_pauses_or_resumes(self, pauses: bool) -> None:
        assert self.site.instance is not None
        verb = asked("pause") if pauses else asked("resume", role="admin")
        self.site.instance.desk.ask(verb, 0)
        self._works()

    @rule()
    def a_checkpoint_is_whole(self) -> None:
        at = self.site.clock.time_s()
        self._known(JobFacts(checkpoint_at=at))

    @rule(progresses=st.booleans(), free=st.sampled_from([None, 0, 1]))
    def the_job_progresses_or_not(self, progresses: bool, free: int | None) -> None:
        self._known(JobFacts(progresses=progresses, replacements=free))

    @rule()
    def the_job_exits(self) -> None:
        if self.site.world.job_state == "RUNNING":
            self.site.world.job_state = "FAILED"

    @rule()
    def the_story_closes(self) -> None:
        self.revision += 1
        closed_at = self.site.clock.time_s()
        self.site.tell(broken(when=self.when, rev=self.revision, closed_at=closed_at))

    # -- what holds

    @invariant()
    def nothing_is_done_twice(self) -> None:
        world = self.site.world
        assert world.applied["drain"] <= 1
        assert world.applied["restart"] <= 1
        doubled = [one.id for one in world.calls if world.applied[one.id] > 1]
        assert not doubled

    @invariant()
    def each_intent_and_each_outcome_is_written_once(self) -> None:
        records = self.site.records()
        intents = [one.id for one in records if isinstance(one, Command)]
        outcomes = [one.command for one in records if isinstance(one, Outcome)]
        assert len(intents) == len(set(intents))
        assert len(outcomes) == len(set(outcomes))
        assert set(outcomes) <= set(intents)

    @invariant()
    def no_call_without_its_intent(self) -> None:
        intents = {one.id for one in self.site.records() if isinstance(one, Command)}
        assert {one.id for one in self.site.world.calls} <= intents

    @invariant()
    def a_job_is_stopped_only_when_its_node_is_out(self) -> None:
        if self.site.world.applied["stop"]:
            assert self.site.world.owners.get(TARGET) == "nodewarden"

    def teardown(self) -> None:
        """In time every recovery is at an end: the job runs, or a person was paged."""
        if self.site.instance is None:
            return
        self.site.instance.points.clear()
        waited_s = 0.0
        while waited_s < END_S:
            self._works()
            self.site.clock.advance(50.0)
            waited_s += 50.0
        self._works()
        self.nothing_is_done_twice()
        for recovery in self.site.recoveries():
            assert recovery.state in ("running", "escalated"), recovery
            told = len(self.site.pages.pages())
            assert told == (recovery.state == "escalated"), recovery
            if recovery.state == "running" and recovery.stopped:
                assert self.site.world.applied["restart"] == 1
            if recovery.state == "running":
                assert self.site.world.job_state != "STOPPED"
        assert all(one.job == JOB for one in self.site.recoveries())

    def _works(self) -> None:
        """Some rounds; where the instance dies the next one takes over."""
        assert self.site.instance is not None
        try:
            self.site.instance.step(2)
        except Power:
            self.site.start()

    def _known(self, facts: JobFacts) -> None:
        self.site.job = lambda _job: facts
        self.site.start()


Promises.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
TestPromises = Promises.TestCase
