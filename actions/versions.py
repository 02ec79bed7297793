"""The register of code and configuration: what each job runs, ran before, and is to run. Pure.

An update names exact versions, and so does a rollback: those that ran before. It joins the next
restart of the job, whatever that is for; an urgent one, or one that joined none in time, gets a
restart of its own. What then happens to it is said in its `Update` record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from telemetry.actions import Compared, Update, UpdateState
from telemetry.findings import stable_id
from telemetry.launching import VERSION_PATTERN

KINDS = ("code", "config")
OF_JOB_MAX = 100  # updates of one job; the oldest go that say nothing of what it runs
JOBS_MAX = 10_000  # those of which nothing was said for longest go
PENDING: frozenset[UpdateState] = frozenset({"waiting", "ordered", "joined"})
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,252}")
_VERSION = re.compile(VERSION_PATTERN)


class Register:
    """Folds `Update` records, in the order of the log."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Update]] = {}
        self._ran_at: dict[str, float] = {}  # job -> when it may last have run

    def take(self, said: Update) -> None:
        """A newer revision replaces the older one."""
        of_job = self._jobs.pop(said.job, {})
        self._jobs[said.job] = of_job  # the newest is the last
        known = of_job.get(said.id)
        if known is None or said.revision > known.revision:
            of_job[said.id] = said
        if len(of_job) > OF_JOB_MAX:
            needed = _needed(of_job.values())
            del of_job[next((name for name in of_job if name not in needed), next(iter(of_job)))]
        while len(self._jobs) > JOBS_MAX:
            del self._jobs[next(iter(self._jobs))]

    def of(self, job: str) -> list[Update]:
        """Its updates, oldest first."""
        return list(self._jobs.get(job, {}).values())

    def all(self) -> list[Update]:
        """Those of all jobs."""
        return [one for of_job in self._jobs.values() for one in of_job.values()]

    def newest_of_all(self) -> list[Update]:
        """The one of each job that was asked for last."""
        return [next(reversed(of_job.values())) for of_job in self._jobs.values()]

    def running(self, job: str) -> dict[str, str]:
        """What it runs; a kind that nobody ever told is not there."""
        ran = [one for one in self.of(job) if one.ran_at is not None]
        found: dict[str, str] = {}
        for one in sorted(ran, key=lambda one: one.ran_at or 0.0):
            found.update(one.versions)
        return found

    def pending(self, job: str) -> Update | None:
        """The one that is still to be run: there is one at most."""
        return next((one for one in reversed(self.of(job)) if one.state in PENDING), None)

    def to_run(self, job: str) -> dict[str, str]:
        """What its next restart is to run."""
        waiting = self.pending(job)
        return {**self.running(job), **(waiting.versions if waiting is not None else {})}

    def newest(self, job: str) -> Update | None:
        """The one that ran last."""
        ran = [one for one in self.of(job) if one.ran_at is not None]
        return sorted(ran, key=lambda one: one.ran_at or 0.0)[-1] if ran else None

    def forget(self, before_s: float, running: Collection[str] | None, now_s: float) -> None:
        """Drop jobs of which nothing was said since, and that were not seen to run since.

        running  jobs that run now; None where nobody says which: then any may
        """
        for job in self._jobs:  # of one that was not asked about before it counts from here on
            if running is None or job in running or job not in self._ran_at:
                self._ran_at[job] = now_s
        self._jobs = {
            job: of_job for job, of_job in self._jobs.items()
            if max(self._ran_at[job], *(one.at for one in of_job.values())) >= before_s
        }  # fmt: skip
        self._ran_at = {job: self._ran_at[job] for job in self._jobs}


def asked(
    register: Register, job: str, versions: Mapping[str, str], *, urgent: bool, by: str,
    note: str, now_s: float, forced_s: float, undoes: str = "",
) -> list[Update] | str:  # fmt: skip
    """The update, after those that it replaces; why there is none else."""
    why = _problem(job, versions)
    if why:
        return why
    known, waiting = register.running(job), register.pending(job)
    if waiting is not None and waiting.state != "waiting":
        return f"update {waiting.id} is under way ({waiting.state}); ask again when it runs"
    # What was still to be run of another kind is kept: one restart, one set of versions.
    wanted = {**(waiting.versions if waiting is not None else {}), **versions}
    if waiting is None and all(known.get(kind) == version for kind, version in wanted.items()):
        return f"job {job} runs that already"
    made = Update(
        id=_id(register, job, now_s), job=job, versions=wanted,
        before={kind: known[kind] for kind in wanted if kind in known},
        urgent=urgent or (waiting is not None and waiting.urgent), state="waiting",
        asked_at=now_s, forced_at=now_s + forced_s, at=now_s, by=by, note=note, undoes=undoes,
        reason="it joins the next restart of the job",
    )  # fmt: skip
    if made.urgent:
        made = msgspec.structs.replace(made, reason="it gets a restart of its own, now")
    if waiting is None:
        return [made]
    made = msgspec.structs.replace(made, forced_at=min(made.forced_at, waiting.forced_at))
    return [changed(waiting, "replaced", f"by {made.id}", now_s), made]


def told(
    register: Register, job: str, versions: Mapping[str, str], *, by: str, note: str, now_s: float
) -> list[Update] | str:
    """What the job runs as it is; nothing is restarted for it."""
    why = _problem(job, versions)
    if why:
        return why
    known = register.running(job)
    return [Update(
        id=_id(register, job, now_s), job=job, versions=dict(versions),
        before={kind: known[kind] for kind in versions if kind in known}, urgent=False,
        state="unproved", asked_at=now_s, forced_at=now_s, at=now_s, by=by, note=note,
        reason="told: nothing was restarted for it", ran_at=now_s,
    )]  # fmt: skip


def rolled_back(
    register: Register, job: str, *, urgent: bool, by: str, note: str, now_s: float, forced_s: float
) -> list[Update] | str:
    """The newest update that ran is taken back: the versions before it are named."""
    newest = register.newest(job)
    if newest is None:
        return f"no update of job {job} ever ran: there is nothing to go back to"
    unknown = [kind for kind in newest.versions if kind not in newest.before]
    if unknown:
        return f"nobody told which {unknown[0]} job {job} ran before {newest.id}; name it: update"
    return asked(
        register, job, newest.before, urgent=urgent, by=by, note=note, now_s=now_s,
        forced_s=forced_s, undoes=newest.id,
    )  # fmt: skip


def due(register: Register, now_s: float) -> list[Update]:
    """Those that are to have a restart of their own."""
    return [
        one for one in register.all()
        if one.state == "waiting" and (one.urgent or now_s >= one.forced_at)
    ]  # fmt: skip


def changed(
    update: Update, state: UpdateState, reason: str, now_s: float, **more: object
) -> Update:
    """Said again."""
    return msgspec.structs.replace(
        update, state=state, reason=reason, at=now_s, revision=update.revision + 1, **more
    )


def judged(update: Update, compared: Iterable[Compared], now_s: float) -> Update:
    """What the steps that were made twice say of it."""
    found = list(compared)
    bad = [one for one in found if one.differs]
    if not found:
        why = "no step was made twice: nothing is proved"
        return changed(update, "unproved", why, now_s)
    if not bad:
        steps = max(one.steps for one in found)
        return changed(update, "matched", f"{steps} steps as before it", now_s, compared=found)
    said = ", ".join(f"{one.quantity} by {one.worst:.3g} (at most {one.limit:g})" for one in bad)
    job = update.next_job or update.job
    why = f"re-run steps differ: {said}; `nodewarden rollback {job}` takes it back"
    return changed(update, "differs", why, now_s, compared=found)


def _needed(updates: Collection[Update]) -> set[str]:
    """Ids of those that say what the job runs of each kind, or is to run, and of the newest."""
    found = {one.id for one in updates if one.state in PENDING}
    ran = sorted((one for one in updates if one.ran_at is not None), key=lambda x: x.ran_at or 0.0)
    of_kind = {kind: one.id for one in ran for kind in one.versions}
    return found | set(of_kind.values()) | {list(updates)[-1].id}


def _id(register: Register, job: str, now_s: float) -> str:
    return stable_id("update", job, f"{now_s!r}", str(len(register.of(job))))


def _problem(job: str, versions: Mapping[str, str]) -> str:
    if _JOB.fullmatch(job) is None:
        return f"{job[:40]!r} is no job's name"
    if not versions:
        return "no version is named"
    for kind, version in versions.items():
        if kind not in KINDS:
            return f"{kind[:40]!r} is none of {', '.join(KINDS)}"
        if _VERSION.fullmatch(version) is None:
            return f"{version[:40]!r} names no version: letters, digits and . _ : / @ + -"
    return ""
