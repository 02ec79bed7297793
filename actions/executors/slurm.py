"""Carries commands out on Slurm: looks, does only what is missing, and looks again.

What Slurm says it did counts for nothing until it is seen. A node that somebody else drained is
left alone; only a drain that reads as ours is ever taken off.
"""

from __future__ import annotations

from collections.abc import Sequence

from actions.executors.slurm_jobs import SlurmJobs
from actions.executors.slurm_nodes import OURS, SlurmNodes
from actions.executors.slurm_port import (
    JOB_ID,
    CallTime,
    JobSeen,
    SlurmController,
)
from actions.executors.slurm_resubmit import Resubmit
from actions.executors.slurm_said import Did, worst
from telemetry.actions import Command, CommandStep, Outcome, Preconditions
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.settings import ActSlurmSettings

REASON_MAX = 1_000
HELD = "HELD"
_WHOLE: dict[str, tuple[CommandStep, ...]] = {
    "isolate": ("drain",),
    "isolate_and_restart": ("drain", "stop", "restart"),
    "restart": ("stop", "restart"),
    "release": ("undrain",),
}  # of a command that names no step
_OF_JOBS = frozenset({"stop", "clean", "restart"})


class SlurmExecutor:
    """An `Executor`. Of restarts it knows the requeue; others are refused, with the reason.

    control   slurmctld
    time      that one call may take; shared with `control`
    resubmit  for jobs that allow no requeue; None where there is no such command
    """

    def __init__(
        self, control: SlurmController, settings: ActSlurmSettings, clock: Clock, time: CallTime,
        resubmit: Resubmit | None = None,
    ) -> None:  # fmt: skip
        self._clock, self._time = clock, time
        prefixes = (OURS, *settings.reason_prefixes_before)
        self._nodes = SlurmNodes(control, prefixes, clock, time)
        self._jobs = SlurmJobs(control, clock, time, settings.begin_now, resubmit)

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """See the port. Of a node that Slurm does not have nothing is said."""
        self._time.begin()
        seen = self._nodes.seen(targets)
        found = self._jobs.seen(job) if JOB_ID.fullmatch(job) else None
        return Preconditions(
            states={name: node.state.text for name, node in seen.items()},
            owners={name: self._nodes.holder(node) for name, node in seen.items()},
            boots={
                name: node.boot_at for name, node in seen.items() if node.boot_at is not None
            },
            job=job, attempt=found.restarts if found is not None else None,
            job_state=_words(found), job_nodes=sorted(found.nodes) if found is not None else [],
            job_user=found.user if found is not None else None,
        )  # fmt: skip

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """See the port. May ask Slurm once more: an exclusion is no part of `now`."""
        self._time.begin()
        steps = _steps(command)
        if not steps or (_OF_JOBS & set(steps) and JOB_ID.fullmatch(command.job) is None):
            return False  # nor will it be: carrying it out refuses it with the reason
        found = self._jobs.seen(command.job) if _OF_JOBS & set(steps) else None
        answers = [self._is_so(step, command, now, found) for step in steps]
        if None in answers:
            return None
        return all(answers)

    def execute(self, command: Command) -> Outcome:
        """See the port. Ends within the call's time; what was not seen to be done is `unknown`."""
        self._time.begin()
        said: list[Did] = []
        if command.dry_run:
            said = [Did("refused", "it was written for a dry run")]
        elif not _steps(command):
            way = f"{command.mode} restart" if command.mode else command.step or command.action
            said = [Did("refused", f"Slurm knows no {way}")]
        for step in () if said else _steps(command):
            said += self._step(step, command)
            if worst(said) != "done":
                break
        reason = "; ".join(one.reason for one in said)
        return Outcome(
            command=command.id, at=self._clock.time_s(), status=worst(said),
            reason=reason[:REASON_MAX],
            next_job=next((one.next_job for one in said if one.next_job), ""),
        )  # fmt: skip

    def _step(self, step: CommandStep, command: Command) -> list[Did]:
        try:
            match step:
                case "drain":
                    return self._nodes.drain(command.targets, command)
                case "undrain":
                    return self._nodes.undrain(command.targets, command)
                case "stop":
                    return [self._jobs.stop(command)]
                case "clean":
                    return [self._jobs.clean(command)]
                case "restart":
                    return [self._jobs.restart(command, _excluded(command))]
                case "replace":
                    return [Did("refused", "Slurm brings no node into a running allocation")]
        except SourceUnavailable as error:  # of a look before anything was changed
            return [Did("refused", f"nothing was done to {step}: {error}")]
        except ValueError as error:
            return [Did("refused", str(error))]

    def _is_so(
        self, step: CommandStep, command: Command, now: Preconditions, job: JobSeen | None
    ) -> bool | None:
        match step:
            case "drain":
                return all(now.owners.get(name) == OURS for name in command.targets)
            case "undrain":
                return all(
                    name in now.states and now.owners.get(name, "") != OURS
                    for name in command.targets
                )
            case "stop":
                return self._jobs.is_stopped(job, command.preconditions.attempt)
            case "clean":
                return self._jobs.is_clean(job)
            case "restart":
                return self._jobs.is_restarted(job, _excluded(command))
            case "replace":
                return False


def _steps(command: Command) -> tuple[CommandStep, ...]:
    if command.mode not in (None, "requeue") and command.step not in ("drain", "undrain"):
        return ()
    return (command.step,) if command.step else _WHOLE.get(command.action, ())


def _excluded(command: Command) -> list[str]:
    return command.exclude or (command.targets if "isolate" in command.action else [])


def _words(job: JobSeen | None) -> str:
    """The state and what stands beside it: "RUNNING", "PENDING+HELD"; "" where there is none."""
    if job is None:
        return ""
    held = [HELD] if job.held and HELD not in job.words else []
    return "+".join([job.state.word, *job.state.flags, *held])
