"""A job on a pool of nodes without a scheduler: hostfile from the pool, stop, clean, start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from actions.executors.mpirun_run import HOST_FILE, MpirunJob, MpirunState
from actions.executors.slurm_port import checked_nodes
from telemetry.actions import Command, CommandStep, Outcome, OutcomeStatus, Preconditions
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.hostlist import expand
from telemetry.launching import Versions
from telemetry.ports import Clock
from telemetry.settings import ActMpirunSettings
from telemetry.tools import Tools

OURS = "nodewarden"  # who holds a node that is out
REASON_MAX = 1_000
AT_ONCE = 16  # nodes that are cleaned at the same time
BEGUN_AFTER_S = 1.0  # a start that ends sooner than that was none
_WHOLE: dict[str, tuple[CommandStep, ...]] = {
    "isolate": ("drain",),
    "isolate_and_restart": ("drain", "stop", "clean", "replace", "restart"),
    "restart": ("stop", "clean", "replace", "restart"),
    "release": ("undrain",),
}  # of a command that names no step
Came = tuple[OutcomeStatus, str]


class MpirunExecutor:
    """An `Executor` of the one job that the settings describe. Raises SettingsError.

    tools  makes a runner of the cleaning command: one each, they run side by side
    """

    def __init__(
        self, settings: ActMpirunSettings, clock: Clock, tools: Callable[[], Tools]
    ) -> None:  # fmt: skip
        self._settings, self._clock, self._tools = settings, clock, tools
        self._pool = pool(settings)
        self._job = MpirunJob(Path(settings.dir), clock)

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """See the port. Nodes that are not of the pool are unknown."""
        state = self._job.state()
        runs = self._job.process(state) is not None
        mine = job == self._settings.job
        return Preconditions(
            states={name: self._word(name, state, runs) for name in targets if name in self._pool},
            owners={name: OURS if name in state.out else "" for name in targets
                    if name in self._pool},
            job=job, attempt=state.attempt if mine else None,
            job_state=("RUNNING" if runs else "STOPPED") if mine else "",
            job_nodes=sorted(state.nodes) if mine and runs else [],
        )  # fmt: skip

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """See the port."""
        state = self._job.state()
        if command.id in state.done:
            return True
        if command.id == state.started_by:  # the rest of a restart comes before the start
            return self._job.process(state) is not None
        match command.step or command.action:
            case "drain" | "isolate":
                return all(name in state.out for name in command.targets)
            case "undrain" | "release":
                return not any(name in state.out for name in command.targets)
            case "stop":
                return self._job.process(state) is None
            case _:
                return False

    def execute(self, command: Command) -> Outcome:
        """See the port."""
        status, reason = self._came_of(command)
        return Outcome(
            command=command.id, at=self._clock.time_s(), status=status, reason=reason[:REASON_MAX]
        )  # fmt: skip

    def _came_of(self, command: Command) -> Came:
        steps = (command.step,) if command.step else _WHOLE.get(command.action, ())
        why = self._objection(command, steps)
        if why:
            return "refused", why
        said: list[str] = []
        with self._job.locked():
            for step in steps:
                status, reason = self._step(step, command)
                said.append(reason)
                if status != "done":
                    return status, "; ".join(said)
            self._job.keep(self._job.state().after(command.id))
        return "done", "; ".join(said)

    def _objection(self, command: Command, steps: Sequence[str]) -> str:
        if command.dry_run:
            return "it was written for a dry run"
        if not steps:
            return f"mpirun is not asked for {command.action}"
        if command.mode == "partial":
            return "mpirun replaces no single ranks"
        try:
            strange = [name for name in checked_nodes(command.targets) if name not in self._pool]
        except ValueError as error:
            return str(error)
        if strange:
            return f"{', '.join(strange[:8])}: not of act.mpirun.pool"
        of_job = {"stop", "clean", "replace", "restart"} & set(steps)
        if of_job and command.job != self._settings.job:
            return f"act.mpirun.job is {self._settings.job!r}, not {command.job!r}"
        wanted, state = command.preconditions.attempt, self._job.state()
        if "stop" in steps and wanted is not None and wanted != state.attempt:
            return f"meant is attempt {wanted}, and the newest is {state.attempt}"
        return ""

    def _step(self, step: CommandStep, command: Command) -> Came:
        state = self._job.state()
        match step:
            case "drain":
                out = {name: command.incident or command.decision for name in command.targets}
                self._job.keep(msgspec.structs.replace(state, out={**out, **state.out}))
                return "done", f"out: {', '.join(command.targets)}"
            case "undrain":
                left = {name: why for name, why in state.out.items() if name not in command.targets}
                self._job.keep(msgspec.structs.replace(state, out=left))
                return "done", f"in the pool again: {', '.join(command.targets)}"
            case "stop":
                return self._stop(state)
            case "clean":
                return self._clean(state)
            case "replace":
                return self._replace(state, command)
            case "restart":
                return self._restart(state, command)

    def _stop(self, state: MpirunState) -> Came:
        pid = self._job.process(state)
        if pid is None:
            return "done", "it does not run"
        if not self._job.end(pid, self._settings.grace_s):
            return "failed", f"process {pid} does not end"
        return "done", f"process {pid} ended"

    def _clean(self, state: MpirunState) -> Came:
        """The site's command, once on each node that worked and is not out."""
        words = self._settings.clean
        nodes = [name for name in state.nodes if name not in state.out]
        if not words:
            return "done", "mpirun ends its ranks itself: act.mpirun.clean is not set"
        if self._job.process(state) is not None:
            return "refused", "the job runs: stop it first"
        until_s = self._clock.monotonic_s() + self._settings.clean_timeout_s
        with ThreadPoolExecutor(AT_ONCE) as threads:
            bad = [
                why for why in threads.map(lambda one: self._cleaned(one, until_s), nodes) if why
            ]
        if bad:
            return "failed", f"not clean: {'; '.join(bad[:8])}"
        return "done", f"{len(nodes)} nodes are clean"

    def _cleaned(self, node: str, until_s: float) -> str:
        words = [word.replace("{node}", node) for word in self._settings.clean]
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0.0:
            return f"{node}: no time was left"
        try:
            ran = self._tools().ran(words, left_s)
        except SourceUnavailable as error:
            return f"{node}: {error}"
        return "" if ran.status == 0 else f"{node}: exit {ran.status}"

    def _replace(self, state: MpirunState, command: Command) -> Came:
        """Who works keeps its place: ranks keep their numbers as far as they can."""
        nodes = placed(self._pool, state.nodes, {*state.out, *command.exclude},
                       self._settings.nodes)  # fmt: skip
        if isinstance(nodes, str):
            return "failed", nodes
        self._job.write_hosts(nodes, self._settings.slots)
        self._job.keep(msgspec.structs.replace(state, nodes=nodes))
        return "done", f"hostfile: {', '.join(nodes[:8])}{' ...' if len(nodes) > 8 else ''}"

    def _restart(self, state: MpirunState, command: Command) -> Came:
        if self._job.process(state) is not None:
            if state.started_by == command.id:
                return "done", f"attempt {state.attempt} runs already"
            return "refused", "the job runs: it was not stopped"
        try:
            versions = msgspec.convert(command.versions, Versions)
        except msgspec.ValidationError as error:
            return "refused", f"versions: {error}"
        # What was drained or given back since the hostfile was written counts now.
        status, reason = self._replace(state, command)
        if status != "done":
            return status, reason
        fresh = msgspec.structs.replace(
            self._job.state(), attempt=state.attempt + 1, pid=None, ticks=None,
            started_by=command.id,
            versions={**state.versions, **{str(k): v for k, v in versions.items()}},
        )  # fmt: skip
        try:
            started = self._job.start(self._words(fresh), fresh)
        except OSError as error:
            return "failed", f"{self._settings.command[0]}: {error.strerror}"
        until_s = self._clock.monotonic_s() + BEGUN_AFTER_S
        while self._clock.monotonic_s() < until_s:
            if self._job.process(started) is None:
                return "failed", f"attempt {started.attempt} ended at once; see output.log"
            self._clock.sleep(0.1)
        return "done", f"attempt {started.attempt}: process {started.pid}; {reason}"

    def _words(self, state: MpirunState) -> list[str]:
        values = {
            "{hostfile}": str(self._job.directory / HOST_FILE), "{nodes}": str(len(state.nodes)),
            "{code}": state.versions.get("code", ""), "{config}": state.versions.get("config", ""),
        }  # fmt: skip
        words = list(self._settings.command)
        for field, value in values.items():
            words = [word.replace(field, value) for word in words]
        return words

    def _word(self, name: str, state: MpirunState, runs: bool) -> str:
        if name in state.out:
            return "out"
        return "working" if runs and name in state.nodes else "standby"


def pool(settings: ActMpirunSettings) -> list[str]:
    """The nodes in their order. Raises SettingsError where the settings describe no job."""
    if not settings.command:
        raise SettingsError("act.mpirun.command is not set")
    if not Path(settings.dir).is_absolute():
        raise SettingsError(f"act.mpirun.dir: {settings.dir!r} is no absolute path")
    names: dict[str, None] = {}
    for text in settings.pool:
        found = expand(text)
        if isinstance(found, str):
            raise SettingsError(f"act.mpirun.pool: {found}")
        names.update(dict.fromkeys(found))
    if len(names) < settings.nodes:
        raise SettingsError(
            f"act.mpirun.pool has {len(names)} nodes and act.mpirun.nodes asks for {settings.nodes}"
        )
    return list(names)


def placed(
    pool: Sequence[str], before: Sequence[str], out: set[str], count: int
) -> list[str] | str:
    """`count` nodes of the pool that are not out; why there are none else.

    Who was in stays in its place; the first others of the pool take the places that are free.
    """
    others = iter([name for name in pool if name not in out and name not in before])
    stays = set(pool) - out
    kept = [name if name in stays else next(others, None) for name in before[:count]]
    found = [name for name in kept if name is not None]
    while len(found) < count and (name := next(others, None)) is not None:
        found.append(name)
    if len(found) < count:
        return f"{count} nodes are needed and {len(found)} of the pool are not out"
    return found
