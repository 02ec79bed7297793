"""A scheduler in memory that hangs, lies, loses replies and knows no modes, for recoveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from actions.service import outcome
from telemetry.actions import Command, Decision, Outcome, Preconditions, Recovery
from telemetry.errors import SourceUnavailable
from telemetry.findings import Action, Incident, When
from telemetry.settings import ActSettings
from telemetry.testing import ManualClock
from tests.acting import SETTINGS, Site, World, incident

# does: as it should; lost: does it and does not answer; hangs: answers nobody and does it later;
# dies: neither does it nor answers; lies: says done and does nothing; refuses, fails: and says so
Behaviour = Literal["does", "lost", "hangs", "dies", "lies", "refuses", "fails"]
LATER_S = 20.0  # until what hangs is done after all: within the time of a call
JOB, TARGET = "7", "node-a"
REAL = msgspec.structs.replace(SETTINGS, dry_run=False)


class Scheduler(World):
    """One job on some nodes. `applied` counts what was really done, by step and by command.

    behaves      step -> how its next calls go, the first is taken; "does" where none is left
    unsupported  modes that it does not know
    starts_in_s  how long a restarted job is pending
    next_job     a restart submits it again under this id; "" under its own
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.behaves: dict[str, list[Behaviour]] = {}
        self.unsupported: set[str] = set()
        self.applied: Counter[str] = Counter()
        self.calls: list[Command] = []
        self.owners: dict[str, str] = {}
        self.job_state, self.run = "RUNNING", 0
        self.job_nodes = [TARGET, "node-b"]
        self.starts_in_s = 0.0
        self.next_job, self.next_state = "", "PENDING"
        self.next_nodes = ["node-b"]
        self._started_at = 0.0
        self._wanted: dict[str, int | None] = {}
        self._later: list[tuple[float, Command]] = []

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """How they stand."""
        self._catch_up()
        if self.away:
            raise SourceUnavailable("the scheduler was taken away by the test")
        seen = Preconditions(
            states=dict.fromkeys(targets, "ALLOCATED"),
            owners={name: self.owners.get(name, "") for name in targets},
            job=job, attempt=self.run if job else None, job_state=self._word() if job else "",
            job_nodes=list(self.job_nodes),
        )  # fmt: skip
        if not job or job != self.next_job:
            return seen
        nodes = self.next_nodes if self.next_state == "RUNNING" else []
        return msgspec.structs.replace(
            seen, attempt=0, job_state=self.next_state, job_nodes=list(nodes)
        )

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Read back from the world, not from what was said."""
        if not self.readable:
            return None
        match command.step:
            case "drain":
                return all(now.owners[name] == "nodewarden" for name in command.targets)
            case "stop":
                return now.job_state not in ("RUNNING", "PENDING")
            case "restart":
                before = command.preconditions.attempt
                return now.attempt is not None and before is not None and now.attempt > before
            case _:
                return command.id in self.done

    def execute(self, command: Command) -> Outcome:
        """As it behaves."""
        self._catch_up()
        self.calls.append(command)
        waiting = self.behaves.get(command.step, [])
        how = waiting.pop(0) if waiting else "does"
        now_s = self._clock.time_s()
        if command.mode in self.unsupported:
            return outcome(command, "refused", f"{command.mode} is not supported", now_s)
        if how in ("refuses", "fails"):
            status: Literal["refused", "failed"] = "refused" if how == "refuses" else "failed"
            return outcome(command, status, f"it {how}", now_s)
        if how in ("does", "lost"):
            self._apply(command)
        if how == "hangs":
            self._later.append((now_s + LATER_S, command))
        if how in ("lost", "hangs", "dies"):
            raise SourceUnavailable(f"no answer: it {how}")
        done = outcome(command, "done", "taken", now_s)
        again = self.next_job if command.step == "restart" else ""
        return msgspec.structs.replace(done, next_job=again)

    def _apply(self, command: Command) -> None:
        self.applied[command.step] += 1
        self.applied[command.id] += 1
        self.done.append(command.id)
        if command.step == "drain":
            self.owners |= dict.fromkeys(command.targets, "nodewarden")
        elif command.step == "stop":
            self.job_state = "STOPPED"
        elif command.step == "restart":
            if self.next_job:
                self.job_state = "CANCELLED"
                return
            self.run += 1
            self.job_state, self._started_at = "RUNNING", self._clock.time_s() + self.starts_in_s
            self.job_nodes = ["node-b", "node-c"]

    def _catch_up(self) -> None:
        now_s = self._clock.time_s()
        due = [command for at_s, command in self._later if at_s <= now_s]
        self._later = [one for one in self._later if one[0] > now_s]
        for command in due:
            self._apply(command)

    def _word(self) -> str:
        starting = self.job_state == "RUNNING" and self._clock.time_s() < self._started_at
        return "PENDING" if starting else self.job_state


class Pages:
    """A Teller that remembers who was told what, across instances."""

    def __init__(self) -> None:
        self.open: dict[str, Incident] = {}
        self.changes: list[str] = []
        self.states: dict[str, list[str]] = {}  # incident -> of the decision, as people heard it

    def take(self, incident: Incident, decision: Decision | None = None) -> None:
        """The newest revision."""
        heard = self.states.setdefault(incident.id, [])
        if decision is not None and decision.state not in heard[-1:]:
            heard.append(decision.state)
        known = self.open.get(incident.id)
        if known is None or incident.rev >= known.rev:
            self.open[incident.id] = incident

    def acknowledge(self, incident: str, by: str) -> int:
        """Nobody is asked."""
        return 0

    def changed(self, change_id: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        """Remember it once."""
        if change_id not in self.changes:
            self.changes.append(change_id)

    def save(self) -> None:
        """It is kept as it is."""

    def pages(self) -> list[str]:
        """The reasons of escalations that are open."""
        return [
            one.verdict.reason for one in self.open.values()
            if one.verdict.rung == "escalated" and one.closed_at is None
        ]  # fmt: skip


def broken(
    name: str = "a", *, action: Action = "isolate_and_restart", when: When = "now", **more: object
) -> Incident:
    """A node of the job that is to go."""
    story = incident(name, action=action, job=JOB)
    targets = [] if action in ("restart", "rollback") else story.verdict.targets
    verdict = msgspec.structs.replace(story.verdict, when=when, targets=targets)
    return msgspec.structs.replace(story, verdict=verdict, verdicts=[verdict], **more)


class Cluster(Site):
    """A site whose world is such a scheduler, and where somebody is told."""

    world: Scheduler

    def __init__(self, settings: ActSettings = REAL) -> None:
        super().__init__(settings)
        self.world = Scheduler(self.clock)
        self.pages = Pages()
        self.teller = self.pages

    def recoveries(self) -> list[Recovery]:
        """How each stands by the log."""
        newest = {one.id: one for one in self.records() if isinstance(one, Recovery)}
        return list(newest.values())

    def states(self) -> list[str]:
        """The states that were gone through, in the order of the log."""
        said = [one.state for one in self.records() if isinstance(one, Recovery)]
        return [state for at, state in enumerate(said) if at == 0 or said[at - 1] != state]

    def steps(self) -> list[str]:
        """The steps that were commanded."""
        return [one.step for one in self.records() if isinstance(one, Command)]

    def run_for(self, seconds: float, every_s: float = 2.0) -> None:
        """The instance works on while time passes."""
        assert self.instance is not None
        end_s = self.clock.time_s() + seconds
        while self.clock.time_s() < end_s:
            self.instance.step()
            self.clock.advance(every_s)
        self.instance.step()
