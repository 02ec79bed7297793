"""Taking a job off its nodes and putting it back into the queue without them.

The job is requeued and held, gets its exclusions while it is held, and only then is released: it
never starts where it was. A job that allows no requeue is cancelled, where the site has a command
that submits it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actions.executors.slurm_port import (
    BEGIN_IN_S,
    CallTime,
    JobChange,
    JobSeen,
    SlurmController,
    checked_job,
    checked_nodes,
)
from actions.executors.slurm_resubmit import Resubmit
from actions.executors.slurm_said import Did, Told, patiently, told
from telemetry.actions import Command
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock

LOOKS_S = (0.05, 0.1, 0.2, 0.4, 0.8)  # between looks at what was changed
SAID_MAX = 200
BEGIN_LOOK_S, BEGIN_MAX_S = 0.3, 3.0  # others wait for the service meanwhile
_OWN_END = frozenset({"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE"})


class SlurmJobs:
    """See above. Its methods raise SourceUnavailable where Slurm cannot be seen beforehand, and
    ValueError where a name is none.
    """

    def __init__(
        self, control: SlurmController, clock: Clock, time: CallTime, begin_now: bool,
        resubmit: Resubmit | None,
    ) -> None:  # fmt: skip
        self._control, self._clock, self._time = control, clock, time
        self._begin_now, self._resubmit = begin_now, resubmit

    def seen(self, name: str) -> JobSeen | None:
        """The job; None where Slurm does not have it any more."""
        checked_job(name)
        return patiently(lambda: self._control.job(name), self._clock, self._time)

    # -- whether it is so already

    def is_stopped(self, job: JobSeen | None, attempt: int | None) -> bool | None:
        """Whether the run that was meant has ended; None where nobody can tell."""
        if job is None:
            return True
        if not job.is_known:
            return None
        if attempt is not None and job.restarts is not None:
            return job.restarts > attempt or not job.runs
        return not job.runs

    def is_clean(self, job: JobSeen | None) -> bool | None:
        """Whether Slurm has ended everything of its last run."""
        if job is None:
            return True
        return not job.is_completing if job.is_known else None

    def is_restarted(self, job: JobSeen | None, excluded: Sequence[str]) -> bool | None:
        """Whether it runs or may start, elsewhere; None where it comes under another id."""
        if job is None or job.is_over:
            return None if self._resubmit is not None else False
        if not job.is_known:
            return None
        return (job.waits or job.runs) and _leaves_out(job, excluded)

    # -- doing it

    def stop(self, command: Command) -> Did:
        """End the run that was meant, and no later one."""
        before, meant = self.seen(command.job), command.preconditions.attempt
        name = command.job
        why = "" if before is None else _ended_by_itself(before)
        if why:
            return Did("refused", f"job {name} {why}")
        if before is None or before.is_over:
            return Did("done", f"job {name} {_how(before)}: it runs nowhere")
        if not before.is_known:
            return _unreadable(before)
        if meant is not None and before.restarts is not None and before.restarts > meant:
            return Did("done", f"job {name} was requeued already: restart {before.restarts}")
        if not before.runs:
            return Did("done", f"job {name} {_how(before)}: it does not run")
        bound = sorted(set(before.required) & set(command.exclude))
        if bound:
            return Did("refused", f"job {name} asks for {', '.join(bound)} itself")
        why = _no_requeue(before)
        if before.is_batch is False:
            return Did("refused", f"job {name} {why}")
        if why and self._resubmit is None:
            return Did("refused", f"job {name} {why}, and act.slurm.resubmit is not set")
        what: JobChange = "cancel" if why else "requeue_hold"
        answer = told(lambda: self._control.change(name, what))
        restarts = before.restarts if meant is None else meant
        after, is_so = self._looked(name, lambda job: self.is_stopped(job, restarts))
        if is_so:
            return Did("done", f"job {name} {'is cancelled' if why else 'is requeued and held'}")
        return answer.undone(f"job {name} {_how(after)}")

    def clean(self, command: Command) -> Did:
        """Slurm ends what is left, and runs the epilog; this only looks."""
        job = self.seen(command.job)
        if self.is_clean(job):
            return Did("done", f"job {command.job} {_how(job)}: nothing of its last run is left")
        return Did("done", f"Slurm still ends job {command.job} on {_nodes(job)}")

    def restart(self, command: Command, excluded: Sequence[str]) -> Did:
        """Put the stopped job back into the queue, without the nodes."""
        name, job = command.job, self._cleaned(command.job)
        checked_nodes(excluded)
        if job is None or job.is_over:
            return self._submitted_again(command, job, excluded)
        if not job.is_known:
            return _unreadable(job)
        if job.is_completing and not job.held:
            return Did("failed", f"job {name} is still being ended on {_nodes(job)}")
        if job.runs and _leaves_out(job, excluded):
            return Did("done", f"job {name} {_how(job)}{_without(excluded)}")
        if job.runs:
            return Did("refused", f"job {name} runs on {_nodes(job)}: it was not stopped")
        answer = self._excluded(job, excluded, command.readmit)
        if answer is not None:
            return answer
        released = told(lambda: self._control.change(name, "release")) if job.held else Told()
        after, is_so = self._looked(name, lambda seen: self.is_restarted(seen, excluded))
        if not is_so:
            return released.undone(f"job {name} {_how(after)}")
        return Did("done", f"job {name} {_how(self._begun(name, after))}{_without(excluded)}")

    # -- parts

    def _excluded(
        self, job: JobSeen, excluded: Sequence[str], readmit: Sequence[str]
    ) -> Did | None:
        """None once it leaves them out, with what its owner left out before."""
        wanted = (set(job.excluded) - set(readmit)) | set(excluded)
        if wanted == set(job.excluded):
            return None
        answer = told(lambda: self._control.exclude(job.id, wanted))
        after, is_so = self._looked(
            job.id, lambda seen: seen is not None and set(excluded) <= set(seen.excluded)
        )
        return None if is_so else answer.undone(f"job {job.id} {_how(after)}, and leaves none out")

    def _begun(self, name: str, job: JobSeen | None) -> JobSeen | None:
        """Tell it to begin now, until it does; only a wish: it begins later by itself."""
        until_s = self._clock.monotonic_s() + min(BEGIN_MAX_S, self._time.spare_s() / 2.0)
        while self._begin_now and job is not None and not job.runs:
            now_s = self._clock.time_s()
            if not job.is_completing and (
                job.begins_at is None or job.begins_at <= now_s + BEGIN_IN_S + 1.0
            ):
                break
            if self._clock.monotonic_s() >= until_s:
                break
            if not job.is_completing:
                told(lambda: self._control.change(name, "begin_now"))
            self._clock.sleep(BEGIN_LOOK_S)
            job = self._once(name) or job
        return job

    def _submitted_again(
        self, command: Command, job: JobSeen | None, excluded: Sequence[str]
    ) -> Did:
        name = command.job
        if self._resubmit is None:
            return Did("failed", f"job {name} {_how(job)}, and act.slurm.resubmit is not set")
        why = "" if job is not None and job.state.word == "CANCELLED" else _ended_by_itself(job)
        if why:  # cancelled it was by us
            return Did("failed", f"job {name} {why}")
        try:
            again = self._resubmit(name, excluded, command.versions)
        except SourceUnavailable as error:
            return Did("unknown", f"job {name} may be submitted again: {error}")
        how = f"as {again.job}" if again.job else repr(again.said[:SAID_MAX])
        said = f"job {name} is submitted again{_without(excluded)}: {how}"
        return Did("done", said, again.job)

    def _looked(
        self, name: str, is_so: Callable[[JobSeen | None], bool | None]
    ) -> tuple[JobSeen | None, bool]:
        """How the job is once it is so, or after the last look; False where nobody sees it."""
        job: JobSeen | None = None
        for wait_s in (*LOOKS_S, 0.0):
            try:
                job = self.seen(name)
            except SourceUnavailable:
                pass  # the change was made, or not: its outcome says that nobody knows
            else:
                if is_so(job):
                    return job, True
            self._clock.sleep(min(wait_s, self._time.spare_s()))
        return job, False

    def _cleaned(self, name: str) -> JobSeen | None:
        """The job once its last run is cleaned, or half of the call's time is over: before that
        nobody can tell a job that ended from one that comes again.
        """
        until_s = self._clock.monotonic_s() + self._time.spare_s() / 2.0
        job = self.seen(name)
        while job is not None and job.is_completing and not job.held:
            if self._clock.monotonic_s() >= until_s:
                break
            self._clock.sleep(BEGIN_LOOK_S)
            job = self._once(name) or job
        return job

    def _once(self, name: str) -> JobSeen | None:
        try:
            return self.seen(name)
        except SourceUnavailable:
            return None


def _leaves_out(job: JobSeen, excluded: Sequence[str]) -> bool:
    """Whether it is elsewhere, or will be: who restarted it is all the same."""
    if set(excluded) & set(job.nodes):
        return False
    return job.runs or set(excluded) <= set(job.excluded)


def _ended_by_itself(job: JobSeen | None) -> str:
    """Why it is not ours to start it again; "" where it may be. How it ended must be known."""
    if job is None:
        return "is not there, and nobody says how it ended"
    own = job.is_over and job.state.word in _OWN_END
    return f"is {job.state.word}: it ended by itself" if own else ""


def _no_requeue(job: JobSeen) -> str:
    """Why Slurm would not start it again; "" where it would. Not said is no."""
    if job.is_batch is False:
        return "is an interactive one, which nobody can start again"
    if job.may_requeue is not True:
        return "allows no requeue"
    return ""


def _unreadable(job: JobSeen) -> Did:
    return Did("refused", f"job {job.id} is {job.state.word!r}, which nobody here knows")


def _how(job: JobSeen | None) -> str:
    if job is None:
        return "is not there"
    held = ", held" if job.held else ""
    return f"is {job.state.word}{held}" + (f" on {_nodes(job)}" if job.nodes else "")


def _nodes(job: JobSeen | None) -> str:
    names = job.nodes if job is not None else ()
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(names[:8]) + more) or "no node"


def _without(excluded: Sequence[str]) -> str:
    return f", without {', '.join(excluded)}"[:200] if excluded else ""
