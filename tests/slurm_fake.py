"""A Slurm in memory, as its executor sees it: it hangs, lies, loses replies, is used by others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from actions.executors.slurm import SlurmExecutor
from actions.executors.slurm_port import CallTime, JobChange, JobSeen, NodeSeen
from actions.executors.slurm_resubmit import Resubmit
from telemetry.actions import Command, Preconditions
from telemetry.errors import SourceUnavailable
from telemetry.settings import ActSlurmSettings
from telemetry.slurm_words import job_state, node_state
from telemetry.testing import ManualClock

BOOT_S = 1_699_000_000.0


class FakeSlurm:
    """A `SlurmController`. `calls` are the changes that reached it, in their order.

    away     nothing answers
    blinks   so many looks fail, and the next one does not
    silent   changes are made, and their replies are lost
    deaf     changes are taken, and nothing is done
    """

    def __init__(self, *nodes: str) -> None:
        self.known = {name: node(name) for name in nodes or ("n1", "n2", "n3", "n4")}
        self.jobs: dict[str, JobSeen] = {}
        self.calls: list[str] = []
        self.away = self.silent = self.deaf = False
        self.refusal = ""
        self.blinks = 0

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeSeen]:
        self._answer()
        return {name: self.known[name] for name in names if name in self.known}

    def job(self, name: str) -> JobSeen | None:
        self._answer()
        return self.jobs.get(name)

    def drain(self, names: Sequence[str], reason: str) -> str:
        with self._change(f"drain {','.join(names)} {reason}") as done:
            if done:
                for name in names:
                    self.set(name, f"{self._base(name)}+DRAIN", reason, "root")
        return self.refusal

    def undrain(self, names: Sequence[str]) -> str:
        with self._change(f"undrain {','.join(names)}") as done:
            if done:
                for name in names:
                    self.set(name, self._base(name))
        return self.refusal

    def change(self, job: str, what: JobChange) -> str:
        with self._change(f"{what} {job}") as done:
            if done:
                self.jobs[job] = self._changed(self.jobs[job], what)
        return self.refusal

    def exclude(self, job: str, nodes: Collection[str]) -> str:
        with self._change(f"exclude {job} {','.join(sorted(nodes))}") as done:
            if done:
                self.jobs[job] = msgspec.structs.replace(
                    self.jobs[job], excluded=tuple(sorted(nodes))
                )
        return self.refusal

    # -- what others do

    def set(self, name: str, state: str, reason: str = "", by: str = "") -> None:
        """A node as it is from now on."""
        self.known[name] = node(name, state, reason, by)

    def run(self, name: str, *nodes: str, **changes: object) -> None:
        """A batch job that may be requeued."""
        one = JobSeen(
            id=name, state=job_state(["RUNNING"]), restarts=0, nodes=nodes, may_requeue=True,
            is_batch=True, is_held=False,
        )  # fmt: skip
        self.jobs[name] = msgspec.structs.replace(one, **changes)

    # -- parts

    def _changed(self, job: JobSeen, what: JobChange) -> JobSeen:
        match what:
            case "cancel":
                return msgspec.structs.replace(job, state=job_state(["CANCELLED"]), nodes=())
            case "requeue_hold":
                return msgspec.structs.replace(
                    job, state=job_state(["PENDING"]), nodes=(), is_held=True,
                    restarts=(job.restarts or 0) + 1,
                )  # fmt: skip
            case "release":
                free = [one for one in self.known if one not in job.excluded
                        and "DRAIN" not in self.known[one].state.flags]  # fmt: skip
                return msgspec.structs.replace(
                    job, state=job_state(["RUNNING"]), nodes=tuple(free[:1]), is_held=False
                )
            case "begin_now":
                return msgspec.structs.replace(job, begins_at=None)

    def _base(self, name: str) -> str:
        return self.known[name].state.base or "IDLE"

    def _answer(self) -> None:
        self.blinks -= 1
        if self.away or self.blinks >= 0:
            raise SourceUnavailable("scontrol: is not done in time")

    @contextmanager
    def _change(self, call: str) -> Iterator[bool]:
        self._answer()
        self.calls.append(call)
        yield not self.deaf and not self.refusal
        if self.silent:
            raise SourceUnavailable("scontrol: is not done in time")


def node(name: str, state: str = "IDLE", reason: str = "", by: str = "") -> NodeSeen:
    """A node as Slurm shows it."""
    return NodeSeen(
        name=name, state=node_state([state]), reason=reason, reason_by=by, boot_at=BOOT_S
    )


def executor(
    slurm: FakeSlurm, resubmit: Resubmit | None = None, **settings: object
) -> SlurmExecutor:
    """The executor over it; its clock moves when it sleeps."""
    clock = ManualClock()
    made = msgspec.convert(settings, ActSlurmSettings)
    return SlurmExecutor(slurm, made, clock, CallTime(clock, 30.0, 10.0), resubmit)


def command(action: str, *targets: str, **changes: object) -> Command:
    """A command about the incident "i1", a lost GPU."""
    one = Command(
        id="c1", decision="d1", action="isolate", targets=list(targets),
        preconditions=Preconditions(), intent_at=1_700_000_000.0, expires_at=1_800_000_000.0,
        incident="i1", dry_run=False, fault="gpu_lost",
    )  # fmt: skip
    return msgspec.structs.replace(one, action=action, **changes)
