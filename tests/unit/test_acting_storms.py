"""Whatever scheduler, people and power do, in any order: what must never happen does not."""

from __future__ import annotations

import random

import msgspec
import pytest

from actions.ledger_log import rebuild
from actions.recovery.table import ENDED
from telemetry.actions import Command, Outcome
from tests.acting import Instance, asked
from tests.recovering import JOB, TARGET, Behaviour, Cluster, Scheduler, broken

HOW: tuple[Behaviour, ...] = ("does", "does", "lost", "hangs", "dies", "lies", "refuses", "fails")
RECORDS_MAX = 1_500  # of one storm: no loop writes without end


class Power(BaseException):
    """The process is gone."""


class Watched(Scheduler):
    """Notes which calls should not have been made."""

    site: Cluster

    def execute(self, command: Command) -> Outcome:
        """As before."""
        assert self.site.instance is not None
        ledger = self.site.instance.ledger
        recovery = ledger.recoveries.get(command.decision)
        decision = ledger.decisions[command.decision]
        assert not ledger.paused
        if recovery is not None and command.step == "stop" and not recovery.stopped:
            assert not ledger.is_false_alarm(decision)
            released = [ledger.released.get(node, 0.0) for node in recovery.targets]
            assert max(released, default=0.0) < recovery.began_at
            if decision.verdict.action == "isolate_and_restart" and self.job_state == "RUNNING":
                assert recovery.run in (None, self.run)
        return super().execute(command)


class Storm:
    """One cluster, and what a seed has happen to it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.site = Cluster()
        self.site.world = self.world = Watched(self.site.clock)
        self.world.site = self.site
        for step in ("drain", "stop", "clean", "restart"):
            self.world.behaves[step] = self.dice.choices(HOW, k=self.dice.randint(0, 2))
        self.world.starts_in_s = self.dice.choice([0.0, 30.0, 200.0])
        actions = ("isolate_and_restart", "isolate_and_restart", "restart", "rollback", "isolate")
        for name in "ab":
            when = self.dice.choice(("now", "at_checkpoint"))
            self.site.tell(broken(name, action=self.dice.choice(actions), when=when))  # type: ignore[arg-type]
        self.one: Instance = self.site.start()

    def blow(self) -> None:
        """Something happens, then time passes."""
        try:
            self.dice.choice((self._people, self._world, self._power))()
            self.site.run_for(self.dice.choice([2.0, 20.0, 60.0]), self.dice.choice([2.0, 5.0]))
        except Power:
            self.one = self.site.start()

    def calm(self) -> None:
        """Everything works again, and time enough passes."""
        self.world.away, self.world.readable = False, True
        self.one.points.clear()
        self.one.ask(asked("resume", role="admin"))
        self.site.run_for(6_000.0, 60.0)

    def _people(self) -> None:
        code = {"code": f"v{self.dice.randint(0, 3)}"}
        update = msgspec.structs.replace(
            asked("update", JOB), versions=code, urgent=self.dice.random() < 0.5
        )
        self.one.ask(self.dice.choice([
            asked("pause"), asked("resume", role="admin"), asked("release", TARGET), update,
            asked("false_alarm", "a"), asked("rollback", JOB),
            msgspec.structs.replace(update, running=True),
        ]))  # fmt: skip

    def _world(self) -> None:
        match self.dice.randint(0, 3):
            case 0:
                self.world.away = not self.world.away
            case 1:
                self.world.readable = not self.world.readable
            case 2:
                self.world.run += 1
                self.world.job_state = "RUNNING"
            case _:
                self.world.job_state = self.dice.choice(["FAILED", "COMPLETED", "RUNNING", ""])

    def _power(self) -> None:
        state = self.dice.choice(("suspect", "stopping", "cleaning", "restarting"))
        point = self.dice.choice(("intent", "act", "outcome"))
        self.one.points[f"{state}.{point}.{self.dice.choice(('before', 'after'))}"] = Power()


@pytest.mark.parametrize("seed", range(16))
def test_in_any_storm_everything_ends_and_nothing_is_done_twice(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(40):
        storm.blow()
    storm.calm()
    ledger = storm.one.ledger
    assert {one.state for one in ledger.recoveries.values()} <= ENDED
    commands = {one.id for one in ledger.all_commands()}
    assert all(storm.world.applied[name] <= 1 for name in commands)
    assert not {one.state for one in ledger.versions.newest_of_all()} & {"ordered", "joined"}
    assert len(storm.site.records()) < RECORDS_MAX
    again = rebuild(storm.site.log.reader(), 20_000, 100_000).ledger
    assert (again.decisions, again.recoveries) == (ledger.decisions, ledger.recoveries)
    assert again.false_alarms == ledger.false_alarms
