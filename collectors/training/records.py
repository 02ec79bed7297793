"""What a training log said as records of the telemetry log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import tzinfo

from msgspec import structs

from collectors.training.model import Failure, Note, Said, Step
from collectors.training.parser import TrainingParser
from telemetry.records import Event, Rejected, Steps

SOURCE = "training"
TOLD_MAX = 1_000_000
TIMES_MAX = 8
NAME_MAX = 256
SAME_S = 30.0  # ranks tell of one step within this; a restart takes longer


class Told:
    """Steps that some log of a job has told already: all ranks may log the same."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[str, int], tuple[float, ...]] = OrderedDict()

    def is_new(self, steps: Steps) -> bool:
        """Whether nobody has told of the job's step at about this time."""
        key = (steps.job, steps.step[0])
        times = self._times.get(key, ())
        if any(abs(at_s - steps.at) <= SAME_S for at_s in times):
            return False
        self._times[key] = (*times, steps.at)[-TIMES_MAX:]
        if len(self._times) > TOLD_MAX:
            self._times.popitem(last=False)
        return True


class LogRecords:
    """One log of a job as records.

    name, tz, rank, clock_s, year_s   as `TrainingParser` takes them
    told                              shared by the job's logs
    """

    def __init__(
        self, name: str, job: str, tz: tzinfo, rank: int | None, clock_s: float | None, told: Told,
        year_s: float | None = None,
    ) -> None:  # fmt: skip
        self._parser = TrainingParser(name, tz, rank, clock_s, year_s)
        self._name, self._job, self._clock_s = name, job, clock_s
        self._told = told
        self._now_s: float | None = None  # of a log that is read as it is written
        self._step: int | None = None
        self._consumed: tuple[int, float] | None = None  # by which step, how many tokens in all

    def heard_at(self, now_s: float) -> None:
        """The log is read as it is written: what comes next and prints no time was said now."""
        self._now_s = now_s
        self._parser.heard_at(now_s)

    def feed(self, piece: bytes) -> Iterator[Steps | Event | Rejected]:
        """The records of what is whole so far."""
        yield from self._records(self._parser.feed(piece))

    def finish(self) -> Iterator[Steps | Event | Rejected]:
        """The rest."""
        yield from self._records(self._parser.finish())

    def notes(self) -> Iterator[str]:
        """What was assumed or left out, in sentences for the report."""
        if self._parser.counted_up:
            how = "clock.json" if self._clock_s is not None else "dated lines beside them"
            yield (f"{self._name}: {self._parser.counted_up} steps print no time; it was reckoned"
                   f" from {how} and the printed durations")  # fmt: skip
        if self._parser.undated:
            yield (f"{self._name}: {self._parser.undated} steps or failures without any time were"
                   ' left out; give training/<job>/clock.json {"start": Unix seconds}')  # fmt: skip

    def _records(self, said: Iterable[Said]) -> Iterator[Steps | Event | Rejected]:
        for one in said:
            if not isinstance(one, Rejected) and self._now_s is not None:
                one.at_s = self._now_s if one.at_s is None else min(one.at_s, self._now_s)
            record = as_record(one, self._job, self._step)
            if isinstance(one, Step) and one.step is not None:
                self._step = one.step
                tokens = self._tokens(one.step, one.more.get("consumed_tokens"))
                if tokens is not None and isinstance(record, Steps):
                    record = structs.replace(record, tokens=[tokens])
            if record is not None and not self._repeats(one, record):
                yield record

    def _tokens(self, step: int, consumed: float | None) -> float | None:
        """What a step consumed, where the log prints the sum: sequences and batches may grow."""
        if consumed is None:
            return None
        before, self._consumed = self._consumed, (step, consumed)
        if before is None or step <= before[0] or consumed <= before[1]:
            return None
        return (consumed - before[1]) / (step - before[0])

    def _repeats(self, said: Said, record: Steps | Event | Rejected) -> bool:
        """Lines that add to a step of their own log are no repeats."""
        if not isinstance(record, Steps) or not isinstance(said, Step):
            return False
        adds = said.step is None or said.form in ("dlrover-log", "mlperf-loss", "mlperf-stats")
        return not adds and not self._told.is_new(record)


def as_record(said: Said, job: str, known_step: int | None) -> Steps | Event | Rejected | None:
    """The record, None where what was said is not placed in time or nothing of a record's.

    known_step  the newest step of the job: what a line without a number speaks of
    """
    if isinstance(said, Step):
        return _steps(said, job, known_step)
    if isinstance(said, Failure):
        return _event(said, job)
    if isinstance(said, Note):
        return _skipped(said, job)
    return said


def _steps(step: Step, job: str, known_step: int | None) -> Steps | None:
    number = step.step if step.step is not None else known_step
    tells = step.step is not None or step.loss is not None or step.nonfinite
    if step.at_s is None or step.repeat or number is None or not tells:
        return None
    bad = list(step.nonfinite)
    return Steps(
        at=step.at_s, node="", source=SOURCE, started_at=0.0, seq=0, job=job, step_kind=step.kind,
        step=[number],
        step_time_s=_column(step.step_time_s, said=True),
        loss=_column(step.loss, "loss" in bad),
        grad_norm=_column(step.grad_norm, "grad_norm" in bad),
        throughput=_column(step.throughput),
        nonfinite=[bad] if bad else [],
    )  # fmt: skip


def _column(value: float | None, said: bool = False) -> list[float | None]:
    """A column of one row; empty where the log does not speak of it at all."""
    return [value] if value is not None or said else []


def _skipped(note: Note, job: str) -> Steps | None:
    """A step that loss scaling skipped: its gradients were not finite."""
    if note.type != "overflow" or note.at_s is None or note.step is None:
        return None
    return Steps(
        at=note.at_s, node="", source=SOURCE, started_at=0.0, seq=0, job=job, step_kind="train",
        step=[note.step], grad_norm=[None], nonfinite=[["grad_norm"]],
    )  # fmt: skip


def _event(failure: Failure, job: str) -> Event | None:
    """An echo in user code's words is no user error, and a local rank names no rank."""
    if failure.at_s is None:
        return None
    class_ = failure.class_
    if failure.role != "cause" and class_ == "user_code":
        class_ = "echo"
    return Event(
        at=failure.at_s, node="", source=SOURCE, started_at=0.0, seq=0, type="process",
        severity="critical" if failure.role == "cause" else "warning", class_=class_,
        entity=f"rank:{failure.rank}" if failure.rank is not None else "",
        text=failure.text, job=job, details=_details(failure),
    )  # fmt: skip


def _details(failure: Failure) -> dict[str, str | int]:
    """What the words say more closely, and which other end they name."""
    said = {"detail": failure.detail, "host": failure.host, "peer": failure.more.get("peer")}
    return {n: value[:NAME_MAX] for n, value in said.items() if value and isinstance(value, str)}
