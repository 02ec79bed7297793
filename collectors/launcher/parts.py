"""The parts that run, and those that are on their way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collectors.launcher.steps import Started, Steps, part_words
from telemetry.errors import InputError, SourceUnavailable
from telemetry.launch_files import read_file, remove_file
from telemetry.launching import (
    PARTS_DIRECTORY,
    RANKS_MAX,
    LaunchedPart,
    PartState,
    Versions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What is launched, and how.

    nodes       of the allocation work; the rest are spares
    tasks       ranks of each node
    partial     the training goes on when only some of its processes are replaced
    grace_s     a rank has so long after SIGTERM
    hold_s      so long the allocation is kept for an order after processes failed or were stopped
    shm         further names of shared memory that is the job's, keep_shm: that is never removed
    """

    job: str
    attempt: int
    allocated: tuple[str, ...]
    nodes: int
    words: tuple[str, ...]
    directory: Path
    tasks: int = 1
    partial: bool = False
    grace_s: float = 10.0
    hold_s: float = 600.0
    master_port: int = 29_500
    shm: tuple[str, ...] = ()
    keep_shm: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What a part says of itself (`collectors.launcher.part`)."""

    node: str
    generation: int
    state: str
    step: int | None
    pids: list[int]


@dataclass(slots=True)
class Part:
    """One of them."""

    node: str
    rank: int
    generation: int
    started: Started
    report: str
    state: PartState = "starting"
    step: int | None = None
    pids: list[int] = field(default_factory=list)
    code: int | None = None

    def seen(self) -> LaunchedPart:
        """As the status says it."""
        return LaunchedPart(
            node=self.node, node_rank=self.rank, generation=self.generation, state=self.state,
            step=self.step, pids=self.pids[:RANKS_MAX], code=self.code,
        )  # fmt: skip


class Parts:
    """Starts, follows and ends them. Waiting is the caller's: `refresh` looks once."""

    def __init__(self, options: LaunchOptions, steps: Steps) -> None:
        self._options, self._steps = options, steps
        self._folder = options.directory / PARTS_DIRECTORY

    def start(
        self, node: str, rank: int, generation: int, master: str, versions: Versions, *,
        clean: bool = False,
    ) -> Part:  # fmt: skip
        """Run the part `rank` on `node`; with `clean` only what comes before the ranks.

        Raises SourceUnavailable.
        """
        options = self._options
        report = f"{node}.{generation}{'.clean' if clean else ''}.json"
        remove_file(self._folder, report)
        said: dict[str, object] = {
            "job": options.job, "attempt": options.attempt, "generation": generation, "node": node,
            "node_rank": rank, "nodes": options.nodes, "tasks": options.tasks, "master": master,
            "master_port": options.master_port, "grace": options.grace_s,
            "report": self._folder / report,
            **{str(kind): version for kind, version in versions.items()},
        }  # fmt: skip
        flags = [*(f"--shm={one}" for one in options.shm),
                 *(f"--keep-shm={one}" for one in options.keep_shm),
                 *(["--clean"] if clean else [])]  # fmt: skip
        words = part_words(said, flags, () if clean else options.words)
        return Part(node, rank, generation, self._steps.start(node, words), report)

    def refresh(self, parts: Iterable[Part]) -> bool:
        """Look at them; whether anything changed."""
        changed = False
        for part in parts:
            if part.state == "starting":
                changed |= self._read(part)
            if part.state != "ended" and (code := part.started.poll()) is not None:
                self._read(part)
                part.state, part.code, changed = "ended", code, True
                self._forget(part)
        return changed

    def end(self, parts: Iterable[Part], *, kill: bool = False) -> None:
        """Tell those that run to end; `kill`: without the grace of the ranks.

        srun takes SIGTERM for the order to kill its step: it gets it only where the scheduler
        cannot be told which step is meant, or did not end it.
        """
        alive = [part for part in parts if part.state != "ended"]
        for part in alive:
            part.state = "ending"
        try:
            self._steps.end([one.step for one in alive if one.step is not None], kill=kill)
            unreached = [part for part in alive if kill or part.step is None]
        except SourceUnavailable:
            unreached = alive
        for part in unreached:
            part.started.terminate()

    def abandon(self, parts: Iterable[Part]) -> list[str]:
        """End what this machine still has of them; the nodes from which nothing was heard."""
        alive = [part for part in parts if part.state != "ended"]
        for part in alive:
            part.started.kill()
        return [part.node for part in alive]

    def _read(self, part: Part) -> bool:
        try:
            found = read_file(self._folder, part.report, Report)
        except (InputError, SourceUnavailable):  # it may be whole the next time
            return False
        if found is None or found.generation != part.generation:
            return False
        part.step, part.pids = found.step, found.pids[:RANKS_MAX]
        if part.state == "starting":
            part.state = "running"
        return True

    def _forget(self, part: Part) -> None:
        try:
            remove_file(self._folder, part.report)
        except SourceUnavailable:  # the next start of this name removes it
            return
