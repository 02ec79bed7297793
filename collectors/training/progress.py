"""Steps in their order: which kind each is, when it ended, how long it took. Pure but for itself.

A printed duration is the mean since the line before. Where none is printed, the difference of two
printed times is one. What all ranks print is one step.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct

from collectors.training.model import Step
from telemetry.codec import AT_MAX_S, AT_MIN_S
from telemetry.records import StepKind

SPEAKERS_MAX = 256
RECENT = 64
FIRST_MAX = 100  # a log's first line further on than this is a log without its beginning
SAME_S = 30.0  # ranks print one step within this


class _Last(Struct, frozen=True, gc=False):
    """The newest step of one speaker; `printed_s` None where its time was reckoned."""

    step: int
    form: str
    printed_s: float | None
    kind: StepKind


class _Shared(Struct, frozen=True, gc=False):
    """A step that every rank may print."""

    step: int
    loss: float | None
    at_s: float | None
    key: str


class Progress:
    """One log's steps.

    clock_s     when the log starts, where it prints no time
    counted_up  steps whose time was reckoned
    undated     steps that could not be placed in time
    of_number   the newest steps that every rank may print, by their numbers
    """

    def __init__(self, clock_s: float | None) -> None:
        self._clock_s = clock_s
        self._speakers: OrderedDict[str, _Last] = OrderedDict()
        self._recent: deque[_Shared] = deque()
        self.of_number: dict[int, list[_Shared]] = {}
        self._key = ""  # of the newest line
        self._newest: _Last | None = None
        self._anchor_s: float | None = None
        self._dated_late = False  # the anchor is a date that stood after a step line
        self._next_kind: StepKind = "train"
        self._restarted = False
        self._special = False  # one of the two above was changed
        self._base: int | None = None
        self._overflowed: int | None = None
        self.counted_up = 0
        self.undated = 0

    @property
    def ended_s(self) -> float | None:
        """When the newest step ended, before the first one the first time known."""
        return self._anchor_s

    @property
    def next_step(self) -> int | None:
        """The step under way; one that is skipped counts too."""
        if self._newest is None:
            return None
        before = self._newest.step if self._overflowed is None else self._overflowed
        return max(before, self._newest.step) + 1

    def overflowed(self, step: int | None) -> None:
        """A step was skipped."""
        self._overflowed = step

    def began(self, at_s: float) -> None:
        """The first time the log tells."""
        if self._anchor_s is None:
            self._anchor_s = at_s
            self._dated_late = self._newest is not None

    def carries(self, kind: StepKind) -> None:
        """The next step's mean holds a checkpoint or an evaluation."""
        self._next_kind, self._special = kind, True

    def restart(self, base: int | None) -> None:
        """The next step is the first of an attempt, which starts after step `base`."""
        self._restarted, self._base, self._special = True, base, True

    def take(self, step: Step, key: str, near_s: float | None, shared: bool) -> Step | None:
        """The step with kind and time, None where it was said before.

        key     who speaks
        near_s  the newest time the log told before this line, None before the first
        shared  every rank prints such lines
        """
        number = step.step
        if number is None:
            return self._numberless(step, near_s)
        if shared and self.said(number, step.loss, step.at_s, key):
            if not key.startswith("#"):
                return None
            step.repeat = True
        own = self._speakers.get(key)
        last = own if own is not None else None if step.repeat else self._newest
        if step.steps is None:
            goes_on = last is not None and self._base is None and number > last.step
            step.steps = number - last.step if goes_on and last else self._since(number, last)
        if last is not None and last.step == number and last.form != step.form:
            step.kind = last.kind
        elif self._special or step.repeat or last is None or number <= last.step:
            step.kind = self._kind(step, number, last)
        if step.step_time_s is None or step.at_s is None or step.reckoned:
            self._time(step, own, near_s)
        self._keep(step, number, key)
        if shared and not step.repeat:
            self._remember(_Shared(number, step.loss, step.at_s, key))
        return step

    def _remember(self, said: _Shared) -> None:
        self._recent.append(said)
        self.of_number.setdefault(said.step, []).append(said)
        if len(self._recent) > RECENT:
            oldest = self._recent.popleft()
            same = self.of_number[oldest.step]
            del same[0]
            if not same:
                del self.of_number[oldest.step]

    def _since(self, number: int, last: _Last | None) -> int | None:
        """How many steps a line speaks for: since the line before, or since training started
        where the log told of its start; None where the log begins in the middle."""
        base, self._base = self._base, None
        if base is None and last is None and self._restarted:
            base = 0
        if base is not None:
            return number - base if 0 < number - base <= FIRST_MAX else None
        return number - last.step if last is not None and number > last.step else None

    def _numberless(self, step: Step, near_s: float | None) -> Step:
        if step.at_s is None and near_s is not None:
            step.at_s, step.reckoned = near_s, True
        self.undated += step.at_s is None
        return step

    def said(self, number: int, loss: float | None, at_s: float | None, key: str) -> bool:
        """Whether another rank has printed the step already."""
        for said in self.of_number.get(number, ()):
            if loss != said.loss or (key != "" and said.key == key):
                continue
            other_s = said.at_s
            if other_s is None or at_s is None or abs(other_s - at_s) <= SAME_S:
                return True
        return False

    def _kind(self, step: Step, number: int, last: _Last | None) -> StepKind:
        if step.repeat:
            return self._newest.kind if self._newest is not None else "train"
        kind, self._next_kind = self._next_kind, "train"
        restarted, self._restarted = self._restarted, False
        self._special = False
        if step.kind != "train":
            return step.kind
        return "first" if last is None or number <= last.step or restarted else kind

    def _time(self, step: Step, last: _Last | None, near_s: float | None) -> None:
        if step.at_s is not None and not step.reckoned:
            before_s = last.printed_s if last is not None else None
            grew = last is not None and step.step is not None and step.step > last.step
            timed = step.step_time_s is not None or step.form.startswith("mlperf")
            if not timed and before_s is not None and grew and step.steps:
                took_s = (step.at_s - before_s) / step.steps
                step.step_time_s = took_s if took_s > 0.0 else None
            return
        if step.at_s is None:
            step.at_s = self._reckoned(step, near_s)
            step.reckoned = step.at_s is not None
        self.counted_up += step.at_s is not None
        self.undated += step.at_s is None

    def _reckoned(self, step: Step, near_s: float | None) -> float | None:
        """When a step without a printed time ended.

        Its duration after the line before; or the time of a neighbouring line, where one was
        printed since then and is not that of the line before.
        """
        anchor_s = self._anchor_s if self._anchor_s is not None else self._clock_s
        if anchor_s is None or step.step_time_s is None:
            return None
        if self._dated_late and near_s is not None:
            return near_s
        took_s = (step.steps or 1) * step.step_time_s
        if near_s is not None and near_s >= anchor_s + took_s / 2.0:
            return near_s
        at_s = anchor_s + took_s
        return at_s if AT_MIN_S <= at_s < AT_MAX_S else None

    def _keep(self, step: Step, number: int, key: str) -> None:
        last = _Last(number, step.form, None if step.reckoned else step.at_s, step.kind)
        self._speakers[key] = last
        if key != self._key:
            self._key = key
            self._speakers.move_to_end(key)
            if len(self._speakers) > SPEAKERS_MAX:
                self._speakers.popitem(last=False)
        if step.repeat:
            return
        self._newest, self._overflowed = last, None
        if step.at_s is not None:
            self._anchor_s, self._dated_late = step.at_s, False


def merged(older: Step, newer: Step) -> Step:
    """One step told by two lines: the newer one, filled from the older one."""
    newer.reckoned = newer.at_s is None
    newer.step = older.step if newer.step is None else newer.step
    newer.at_s = older.at_s if newer.at_s is None else newer.at_s
    newer.step_time_s = older.step_time_s if newer.step_time_s is None else newer.step_time_s
    newer.steps = older.steps if newer.steps is None else newer.steps
    newer.loss = older.loss if newer.loss is None else newer.loss
    newer.grad_norm = older.grad_norm if newer.grad_norm is None else newer.grad_norm
    newer.throughput = older.throughput if newer.throughput is None else newer.throughput
    newer.throughput_unit = newer.throughput_unit or older.throughput_unit
    if older.nonfinite:
        newer.nonfinite = tuple(dict.fromkeys((*older.nonfinite, *newer.nonfinite)))
    newer.more = {**older.more, **newer.more}
    return newer
