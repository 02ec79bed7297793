"""Starts the parts of a job, follows them, and carries out orders of the action service.

One loop in one thread. An order is read from the job's directory when SIGUSR1 arrives at the batch
step, and every few seconds in case the signal was lost. Whatever is waited for has a bound. Where
processes fail the allocation is kept for a while, because a restart in place needs it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType

from collectors.launcher.layout import Layout
from collectors.launcher.parts import LaunchOptions, Part, Parts
from collectors.launcher.steps import Steps
from telemetry.errors import InputError, SourceUnavailable
from telemetry.launch_files import read_file, remove_file, write_file
from telemetry.launching import (
    ORDER_FILE,
    PARTS_DIRECTORY,
    RESULTS_MAX,
    STATUS_FILE,
    VERSIONS_FILE,
    Doing,
    LaunchOrder,
    LaunchResult,
    LaunchStatus,
    Phase,
    ResultState,
    Versions,
)
from telemetry.ports import Clock

POLL_S = 2.0
FAST_POLL_S = 0.1  # while something is waited for
LOOK_EACH_S = 0.001
SAY_EVERY_S = 10.0
START_MAX_S = 120.0
CLEAN_MAX_S = 60.0
GONE_MAX_S = 5.0  # beyond the ranks' own grace
LOST_MAX_S = 2.0  # beyond the others, for a node that is to go: most likely it does not answer
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Told(Exception):
    """A signal ends the launcher."""


class Launcher:
    """See above. Raises SourceUnavailable where the first start is not possible."""

    def __init__(self, options: LaunchOptions, steps: Steps, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._parts = Parts(options, steps)
        self._layout = Layout.of(options.allocated, options.nodes)
        self._running: dict[int, Part] = {}  # by their place
        self._generation = 0
        self._versions: Versions = {}
        self._phase: Phase = "starting"
        self._results: dict[str, LaunchResult] = {}
        self._told: int | None = None
        self._is_over = False  # and comes never again: not ended from outside
        self._held_since_s: float | None = None
        self._said_s = clock.monotonic_s()
        self._wake, self._woken = os.pipe()

    def run(self, versions: Versions) -> int:
        """The exit status of the job: that of the first part that failed."""
        with self._signals(), self._files():
            try:
                self._versions = {**versions, **self._left_versions()}
                self._start(range(self._options.nodes))
                while (code := self._over()) is None:
                    self._sleep(POLL_S)
                    self._look()
                    self._read_order()
            except _Told:
                code = 128 + (self._told or 0)
            else:
                self._is_over = True
            self._told = None  # what is left takes its bounded time
            try:
                self._end(list(self._running.values()), "over")
            except _Told:  # told again: somebody is in a hurry
                self._parts.abandon(self._running.values())
        return code

    # -- what runs

    def _start(self, ranks: Sequence[int]) -> None:
        """A new generation of these parts. Raises SourceUnavailable."""
        self._generation += 1
        master = self._layout.nodes[0]
        for rank in ranks:
            node = self._layout.nodes[rank]
            self._running[rank] = self._parts.start(
                node, rank, self._generation, master, self._versions
            )
        self._held_since_s = None
        self._say("starting")

    def _look(self) -> None:
        changed = self._parts.refresh(self._running.values())
        states = {part.state for part in self._running.values()}
        if self._phase == "starting" and "starting" not in states:
            self._phase, changed = "running", True
        failed = any(part.code not in (None, 0) for part in self._running.values())
        if failed and self._phase in ("starting", "running"):
            self._phase, changed = "failed", True
            self._held_since_s = self._clock.monotonic_s()
            print(f"nodewarden: {self._failure()}; the allocation is kept"
                  f" {self._options.hold_s:g} s", file=sys.stderr)  # fmt: skip
        if changed or self._clock.monotonic_s() - self._said_s >= SAY_EVERY_S:
            self._say()

    def _over(self) -> int | None:
        """The exit status, where nothing is left to be done or to be waited for."""
        codes = [part.code for part in self._running.values()]
        if all(code == 0 for code in codes) and self._phase not in ("stopped", "stopping"):
            return 0
        if self._held_since_s is None:
            return None
        if self._clock.monotonic_s() - self._held_since_s < self._options.hold_s:
            return None
        print("nodewarden: nobody started the processes again in time", file=sys.stderr)
        failed = next((code for code in codes if code not in (None, 0)), None)
        return 1 if failed is None else failed if failed > 0 else 128 - failed

    def _failure(self) -> str:
        failed = [part for part in self._running.values() if part.code not in (None, 0)]
        return (
            ", ".join(f"{part.node}: exit {part.code}" for part in failed[:8]) or "nothing failed"
        )

    def _end(self, parts: Sequence[Part], phase: Phase, going: Collection[str] = ()) -> str:
        """End these; what could not be ended in an orderly way, "" where all was.

        going  nodes that get no process any more: they are not waited for as long
        """
        self._say("stopping")
        self._parts.refresh(parts)
        self._parts.end(parts)
        staying = [part for part in parts if part.node not in going]
        whole = self._until(staying, "ended", self._options.grace_s + GONE_MAX_S)
        if not self._until(parts, "ended", LOST_MAX_S) or not whole:
            self._parts.end(parts, kill=True)
            self._until(staying, "ended", GONE_MAX_S)
            self._until(parts, "ended", LOST_MAX_S)
        silent = self._parts.abandon(parts)
        self._until(parts, "ended", GONE_MAX_S)
        self._say(phase)
        return f"nothing was heard from {', '.join(silent[:8])}" if silent else ""

    def _until(self, parts: Sequence[Part], state: str, bound_s: float) -> bool:
        """Wait until all parts are in `state`, or ended. Raises _Told."""
        until_s = self._clock.monotonic_s() + bound_s
        while not all(part.state in (state, "ended") for part in parts):
            if self._clock.monotonic_s() >= until_s:
                return False
            # A look reads a file of each part that starts, from a file system that all nodes share.
            self._sleep(FAST_POLL_S + LOOK_EACH_S * len(parts))
            self._parts.refresh(parts)
        return True

    # -- orders

    def _read_order(self) -> None:
        try:
            order = read_file(
                self._options.directory, ORDER_FILE, LaunchOrder, frozenset({0, os.getuid()})
            )
        except (InputError, SourceUnavailable) as error:
            print(f"nodewarden: order not taken: {error}", file=sys.stderr)
            with contextlib.suppress(SourceUnavailable):  # said once, and nobody's any more
                remove_file(self._options.directory, ORDER_FILE)
            return
        if order is None or order.id in self._results:
            return
        why = self._objection(order)
        if why:
            self._result(order, "refused", why)
            return
        self._result(order, "running", "begun")
        try:
            self._result(order, *self._done(order))
        except SourceUnavailable as error:
            self._result(order, "failed", str(error))

    def _left_versions(self) -> Versions:
        """What was run last, or is to be run after a requeue."""
        try:
            found = read_file(
                self._options.directory, VERSIONS_FILE, Versions, frozenset({0, os.getuid()})
            )
        except (InputError, SourceUnavailable) as error:
            print(f"nodewarden: versions not taken: {error}", file=sys.stderr)
            return {}
        return found or {}

    def _objection(self, order: LaunchOrder) -> str:
        options = self._options
        if (order.job, order.attempt) != (options.job, options.attempt):
            return f"this is attempt {options.attempt} of job {options.job}"
        if self._clock.time_s() >= order.expires_at:
            return "it expired before it was read"
        if order.mode == "partial" and not options.partial:
            return "the training was not started as one of which parts can be replaced (--partial)"
        if order.mode == "partial" and {**self._versions, **order.versions} != self._versions:
            return "healthy ranks would go on with other versions than the new ones"
        layout = self._layout.without(order.exclude)
        if isinstance(layout, str):
            return layout
        ranks = self._meant(order)
        if not ranks:
            return "no part of the job runs on these nodes"
        if order.do == "clean" and any(self._running[rank].state != "ended" for rank in ranks):
            return "its processes run; stop them first"
        return ""

    def _meant(self, order: LaunchOrder) -> list[int]:
        """Places of the parts: all, or those on the named nodes and those that ended."""
        if order.mode == "in_place":
            return list(range(self._options.nodes))
        named = {*order.nodes, *order.exclude}
        return [
            rank for rank, part in sorted(self._running.items())
            if part.node in named or part.state == "ended"
        ]  # fmt: skip

    def _done(self, order: LaunchOrder) -> tuple[ResultState, str]:
        """Carry it out. Raises SourceUnavailable, _Told."""
        layout, ranks = self._layout.without(order.exclude), self._meant(order)
        assert isinstance(layout, Layout), "asked in _objection"
        if order.do == "clean":
            return self._cleaned([(layout.nodes[rank], rank) for rank in ranks])
        left = self._end([self._running[rank] for rank in ranks], "stopped", order.exclude)
        if order.do == "stop":
            self._held_since_s = self._clock.monotonic_s()
            return "done", f"{len(ranks)} parts ended" + (f"; {left}" if left else "")
        self._layout = layout
        if order.versions:
            self._versions = {**self._versions, **order.versions}
            write_file(self._options.directory, VERSIONS_FILE, self._versions)
        self._start(ranks)
        return self._started(ranks, left)

    def _started(self, ranks: Sequence[int], left: str) -> tuple[ResultState, str]:
        parts = [self._running[rank] for rank in ranks]
        in_time = self._until(parts, "running", START_MAX_S)
        self._look()
        bad = [part for part in parts if part.state == "starting" or part.code not in (None, 0)]
        if bad or not in_time:
            names = ", ".join(part.node for part in bad[:8])
            if self._held_since_s is None:
                self._held_since_s = self._clock.monotonic_s()
            return "failed", f"generation {self._generation} did not start on {names}"
        said = f"generation {self._generation}: {len(parts)} of {self._options.nodes} parts started"
        return "done", f"{said}; {left}" if left else said

    def _cleaned(self, places: Sequence[tuple[str, int]]) -> tuple[ResultState, str]:
        self._say("cleaning")
        parts = [
            self._parts.start(node, rank, self._generation, "", {}, clean=True)
            for node, rank in places
        ]
        self._until(parts, "ended", CLEAN_MAX_S)
        silent = self._parts.abandon(parts)
        bad = [part.node for part in parts if part.code not in (None, 0)]
        self._say("stopped")
        if silent or bad:
            return "failed", f"not clean: {', '.join([*silent, *bad][:8])}"
        return "done", f"{len(parts)} nodes are clean"

    def _result(self, order: LaunchOrder, state: ResultState, reason: str) -> None:
        do: Doing = order.do
        self._results.pop(order.id, None)
        self._results[order.id] = LaunchResult(
            id=order.id, do=do, state=state, reason=reason, at=self._clock.time_s()
        )
        while len(self._results) > RESULTS_MAX:
            del self._results[next(iter(self._results))]
        if state != "running":
            print(f"nodewarden: {order.do} ({order.mode}): {state}: {reason}", file=sys.stderr)
        self._say()

    # -- the world

    def _say(self, phase: Phase | None = None) -> None:
        """The status, as it is now."""
        self._phase = phase or self._phase
        self._said_s = self._clock.monotonic_s()
        status = LaunchStatus(
            job=self._options.job, attempt=self._options.attempt, at=self._clock.time_s(),
            phase=self._phase, generation=self._generation, partial=self._options.partial,
            parts=[part.seen() for _, part in sorted(self._running.items())],
            spares=list(self._layout.spares), excluded=list(self._layout.excluded),
            versions=self._versions, results=list(self._results.values()),
        )  # fmt: skip
        try:
            write_file(self._options.directory, STATUS_FILE, status)
        except SourceUnavailable as error:  # the training goes on; nobody can see it
            print(f"nodewarden: status not written: {error}", file=sys.stderr)

    def _sleep(self, seconds: float) -> None:
        """Until something happens. Raises _Told."""
        if self._told is None:
            select.select([self._wake], [], [], seconds)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4_096)
        if self._told is not None:
            raise _Told

    @contextlib.contextmanager
    def _files(self) -> Iterator[None]:
        """The job's directory: empty at the start, gone when the job is over.

        A job that is ended from outside may come again: what it is to run then stays.
        """
        folder = self._options.directory
        try:
            (folder / PARTS_DIRECTORY).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}; choose another --dir") from error
        if folder.lstat().st_uid != os.getuid():
            raise InputError(f"{folder}: somebody else's; choose another --dir")
        self._empty()
        try:
            yield
        finally:
            self._empty()
            remove_file(folder, STATUS_FILE)
            if self._is_over:
                remove_file(folder, VERSIONS_FILE)
                with contextlib.suppress(OSError):  # something else is in it: not ours
                    (folder / PARTS_DIRECTORY).rmdir()
                    folder.rmdir()

    def _empty(self) -> None:
        remove_file(self._options.directory, ORDER_FILE)
        for path in (self._options.directory / PARTS_DIRECTORY).iterdir():
            remove_file(path.parent, path.name)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def tell(number: int, _frame: FrameType | None) -> None:
            self._told = number

        def wake(_number: int, _frame: FrameType | None) -> None:
            """The pipe says it."""

        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        before_fd = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            **dict.fromkeys(ENDING, tell), signal.SIGUSR1: wake, signal.SIGCHLD: wake
        }  # fmt: skip
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)
            os.close(self._wake)
            os.close(self._woken)
