"""The node agent's loop: one thread that owns everything but the rounds, and waits in one place."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from collectors.agent.counts import Counts
from collectors.agent.jobs_here import JobsHere
from collectors.agent.kernel_source import KernelSource
from collectors.agent.launches import Launch, event_of
from collectors.agent.notes import Notes
from collectors.agent.positions import Settling
from collectors.agent.rounds import Phase, Reading, Results, Rounds, Worker
from collectors.agent.sink import Sink
from collectors.agent.step_socket import StepSocket
from collectors.agent.steps import StepBatcher, StepRow
from collectors.agent.tail import TailPosition
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Event, Record, Rejected

if TYPE_CHECKING:  # they bring numpy and parsers, which a node without such files does not need
    from collectors.agent.found_files import FoundFiles, FoundPosition
    from collectors.agent.training_source import TrainingSource

TURN_S = 1.0  # the loop turns at least so often
LOGS_S = 1.0
LOOK_S = 10.0
JOBS_S = 1.0
LOGS_SAVED_S = 10.0  # a position in logs that never pause is kept so often
SETTLE_S = 1.0
REJECTED_A_MINUTE = 60
LAUNCHES_A_MINUTE = 2_000  # events of processes that died; a node has some hundred processes
CLOSE_S = 3.0
ONCE_POLLS_MAX = 50
ONCE_WAIT_S = 0.02


@dataclass(frozen=True, slots=True)
class Sources:
    """What the agent reads; None what it does not.

    logs_settling   where positions in training logs are kept, None keeps none
    found_settling  the same of files that are read once
    """

    rounds: Rounds
    gpu: Phase
    nic: Phase
    kernel: KernelSource
    boot_id: str = ""
    host: Phase | None = None
    training: TrainingSource | None = None
    logs_settling: Settling[TailPosition] | None = None
    socket: StepSocket | None = None
    found: FoundFiles | None = None
    found_settling: Settling[FoundPosition] | None = None
    jobs: JobsHere | None = None


class Agent:
    """One node's agent. `run` until `stop`, or `once`."""

    def __init__(
        self, node: str, sources: Sources, sink: Sink, counts: Counts, notes: Notes, clock: Clock
    ) -> None:
        self._sources, self._sink, self._clock = sources, sink, clock
        self._counts, self._notes = counts, notes
        self._node = node
        self._rejects, self._launches = _Room(REJECTED_A_MINUTE), _Room(LAUNCHES_A_MINUTE)
        self._started_at = clock.time_s()
        self._batcher = StepBatcher(node)
        self._ticket = 0
        self._stopping = False
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._results = Results(self.wake)
        self._timers: list[_Timer] = []
        self._logs_position: TailPosition | None = None  # waits for its steps to leave the batch
        self._logs_saved_s = -math.inf
        self._watched: int | None = None

    def wake(self) -> None:
        """Let the loop turn now; from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is awake already
            os.write(self._wake_in, b"\x00")

    def stop(self) -> None:
        """End `run` soon; also from a signal handler."""
        self._stopping = True
        self.wake()

    def once(self) -> None:
        """Read every source once and hand everything over."""
        rounds, found = self._sources.rounds, self._sources.found
        self._jobs()
        for read in (rounds.gpu, rounds.nic, rounds.host, rounds.hardware):
            self._take(read())
        if found is not None:
            self._take(found.read())
        for _ in range(ONCE_POLLS_MAX):
            self._kernel()
            if self._sources.kernel.is_read:
                break
            self._clock.sleep(ONCE_WAIT_S)
        self._logs(look=True)
        self._finish()

    def run(self) -> None:
        """Read until told to stop; then hand over what can be handed over."""
        rounds, sources = self._sources.rounds, self._sources
        hardware = Worker("hardware", rounds.hardware, self._results.put)
        gpu = Worker("gpu", rounds.gpu, lambda done: self._scraped(done, hardware))
        nic = Worker("nic", rounds.nic, self._results.put)
        workers = [gpu, nic, hardware]
        self._timers = [
            _Timer(lambda: self._round(gpu, "gpu"), phase=sources.gpu),
            _Timer(lambda: self._round(nic, "nic"), phase=sources.nic),
            _Timer(lambda: self._logs(look=True), every_s=LOOK_S),
            _Timer(self._logs, every_s=LOGS_S),
            _Timer(self._jobs, every_s=JOBS_S),
            _Timer(self._settle, every_s=SETTLE_S),
        ]
        if sources.host is not None:
            host = Worker("host", rounds.host, self._results.put)
            workers.append(host)
            self._timers.append(_Timer(lambda: self._round(host, "host"), phase=sources.host))
        if sources.found is not None:
            found = Worker("files", sources.found.read, self._results.put)
            workers.append(found)
            self._timers.append(_Timer(lambda: self._round(found, "files"), every_s=LOOK_S))
        self._jobs()  # before the first record, which may be one of theirs
        for timer in self._timers:
            timer.plan(self._clock)
        try:
            self._loop(workers)
        finally:  # also after an error of ours: what is known leaves the node
            for worker in workers:
                worker.end()
            self._finish()

    def _loop(self, workers: Sequence[Worker]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            if self._sources.socket is not None:
                selector.register(self._sources.socket.socket, selectors.EVENT_READ)
            while not self._stopping:
                self._turn(selector, workers)
        self._kernel()
        self._logs()
        self._datagrams()

    def _turn(self, selector: selectors.BaseSelector, workers: Sequence[Worker]) -> None:
        self._watch(selector)
        selector.select(self._wait_s())
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_out, 4_096)
        for worker in workers:
            if worker.error is not None:
                raise worker.error
        for reading in self._results.take():
            self._take(reading)
        self._kernel()
        self._datagrams()
        now_s = self._clock.monotonic_s()
        for timer in self._timers:
            if timer.due_s <= now_s:
                timer.run()
                timer.plan(self._clock)
        for steps in self._batcher.take(now_s):
            self._put(steps)
        self._logs_reached()
        self._sink.pump()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """The kernel's file comes and goes."""
        file = self._sources.kernel.file()
        if file == self._watched:
            return
        if self._watched is not None:
            selector.unregister(self._watched)
        if file is not None:
            selector.register(file, selectors.EVENT_READ)
        self._watched = file

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic_s()
        due_s = min(timer.due_s for timer in self._timers)
        steps_s = self._batcher.due_s()
        if steps_s is not None:
            due_s = min(due_s, steps_s)
        return max(0.0, min(due_s - now_s, self._sources.kernel.wait_s(), TURN_S))

    # -- sources

    def _round(self, worker: Worker, name: str) -> None:
        if not worker.trigger():
            self._counts.add("rounds_left_out", 1, name)

    def _scraped(self, reading: Reading, hardware: Worker) -> None:
        """In the worker's thread: now the exporters have said which GPUs there are."""
        self._results.put(reading)
        hardware.trigger()

    def _take(self, reading: Reading) -> None:
        for record in reading.records:
            self._put(record)
        for rejected in reading.rejected:
            self._reject(rejected)
        self._notes.say_all(reading.notes)
        settling = self._sources.found_settling
        if settling is not None and reading.position is not None:
            settling.reached(self._ticket, reading.position)

    def _jobs(self) -> None:
        if self._sources.jobs is not None:
            for one in self._sources.jobs.look():
                self._counts.add("rejected", 1, "jobs")
                self._reject(one)

    def _kernel(self) -> bool:
        kernel = self._sources.kernel
        said = kernel.poll()
        for one in said:
            self._put_or_reject(one)
        kernel.reached(self._ticket)
        self._notes.say_all(kernel.notes)
        kernel.notes.clear()
        return bool(said)

    def _logs(self, *, look: bool = False) -> None:
        training = self._sources.training
        if training is None:
            return
        for one in [*(training.look() if look else []), *training.poll()]:
            self._said(one)
        errors, training.tails.counts.errors = training.tails.counts.errors, []
        self._notes.say_all(errors)
        self._counts.add("errors", len(errors), "training")
        # A position is best taken when no log has told half of something; but one that never pauses
        # must not be read again from far behind after a kill.
        now_s = self._clock.monotonic_s()
        if training.is_quiet or now_s - self._logs_saved_s >= LOGS_SAVED_S:
            self._logs_position, self._logs_saved_s = training.tails.position(), now_s

    def _logs_reached(self) -> None:
        """The steps before a position have left the batch: it waits only for the sink."""
        settling = self._sources.logs_settling
        if settling is None or self._logs_position is None or self._batcher.due_s() is not None:
            return
        settling.reached(self._ticket, self._logs_position)
        self._logs_position = None

    def _datagrams(self) -> None:
        if self._sources.socket is None:
            return
        for one in self._sources.socket.poll():
            if isinstance(one, Launch):
                self._launch(one)
                continue
            self._counts.add("step_datagrams")
            self._said(one)

    def _launch(self, said: Launch) -> None:
        """A process that died is an event at once; a job that dies over and over is bounded."""
        self._counts.add("launches", 1, said.launch)
        if said.launch == "start" or said.exitcode == 0:
            return
        if not self._launches.take(self._clock.monotonic_s()):
            self._counts.add("launches_left_out")
            return
        event = event_of(said, self._node, self._sources.boot_id)
        if event is not None:
            self._put(event)

    def _said(self, one: StepRow | Event | Rejected) -> None:
        if isinstance(one, StepRow):
            self._batcher.add(one, self._clock.monotonic_s())
            self._counts.set("steps_dropped", self._batcher.dropped)
        else:
            self._put_or_reject(one)

    # -- the way out

    def _put_or_reject(self, one: Event | Rejected) -> None:
        if isinstance(one, Rejected):
            self._counts.add("rejected", 1, "log")
            self._reject(one)
        else:
            self._put(one)

    def _put(self, record: Record) -> None:
        if self._sources.jobs is not None:
            record = self._sources.jobs.stamped(record)
        self._ticket = self._sink.put(structs.replace(record, started_at=self._started_at))
        self._counts.add("records", 1, type(record).__name__.lower())

    def _reject(self, rejected: Rejected) -> None:
        """A source that is all junk must not fill the topic of the rejected."""
        if self._rejects.take(self._clock.monotonic_s()):
            self._sink.reject(rejected)
        else:
            self._counts.add("rejected_left_out")

    def _settle(self) -> None:
        settled, sources = self._sink.safe, self._sources
        try:
            sources.kernel.settle(settled)
            for settling in (sources.logs_settling, sources.found_settling):
                if settling is not None:
                    settling.settle(settled)
        except SourceUnavailable as error:  # a full disk; after a restart more is read again
            self._counts.add("errors", 1, "state")
            self._notes.say_all([str(error)])

    def _finish(self) -> None:
        """What waited is said, as far as time allows; positions are saved as far as it is kept."""
        sources = self._sources
        for reading in self._results.take():
            self._take(reading)
        for event in sources.kernel.finish():
            self._put_or_reject(event)
        if sources.training is not None:
            for one in sources.training.finish():
                self._said(one)
        for steps in self._batcher.take(self._clock.monotonic_s(), everything=True):
            self._put(steps)
        sources.kernel.reached(self._ticket)
        if sources.training is not None and sources.logs_settling is not None:
            sources.logs_settling.reached(self._ticket, sources.training.tails.position())
        self._sink.close(CLOSE_S)
        self._settle()
        sources.kernel.close()
        if sources.training is not None:
            sources.training.close()
        if sources.socket is not None:
            sources.socket.close()
        os.close(self._wake_out)
        os.close(self._wake_in)


class _Room:
    """So many a minute."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = self._left = a_minute
        self._until_s = 0.0

    def take(self, now_s: float) -> bool:
        """Whether there is room for one more."""
        if now_s >= self._until_s:
            self._until_s, self._left = now_s + 60.0, self._a_minute
        self._left = max(-1, self._left - 1)
        return self._left >= 0


class _Timer:
    """Runs every so often, or at the moments of a phase."""

    def __init__(
        self, run: Callable[[], None], *, every_s: float = 0.0, phase: Phase | None = None
    ) -> None:
        self.run, self._every_s, self._phase = run, every_s, phase
        self.due_s = 0.0
        self._planned = False

    def plan(self, clock: Clock) -> None:
        """The next time; a source without a phase runs at once for the first time."""
        wait_s = self._every_s if self._planned else 0.0
        if self._phase is not None:
            wait_s = self._phase.wait_s(clock.time_s(), first=not self._planned)
        self._planned = True
        self.due_s = clock.monotonic_s() + wait_s
