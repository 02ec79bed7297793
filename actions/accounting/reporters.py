"""Whether a job began anew, from what each of those who tell of its steps said before.

A log of the whole job and each node's ranks speak for themselves: that one of them is behind the
others proves nothing, that it goes back behind itself does.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from telemetry.records import StepKind, Steps

REPORTERS_MAX = 20_000
TRAINING: frozenset[StepKind] = frozenset({"train", "unknown", "warmup", "first"})
WHOLE_JOB = -1


class _Word(msgspec.Struct):
    """The newest word of one reporter; `begins`: a first step begins."""

    epoch: int
    step: int
    at: float
    begins: bool


class Reporters:
    """Of one job. `epoch` counts its attempts, as the steps show them."""

    def __init__(self) -> None:
        self._words: OrderedDict[tuple[str, int], _Word] = OrderedDict()
        self.epoch = 0
        self._epoch_s = float("-inf")
        self._step_first: int | None = None

    def begin_epoch(self, at: float, step: int) -> None:
        """The job began anew with `step`; what was said of times before `at` is of before."""
        self.epoch += 1
        self._epoch_s = at
        self._step_first = step

    def is_of_now(self, at: float) -> bool:
        """Whether something of that time belongs to the running attempt."""
        return at >= self._epoch_s

    def hear(self, steps: Steps, step: int, at: float, took_s: float | None) -> bool:
        """Take the word; True where it shows that the job began anew."""
        if steps.step_kind not in TRAINING or not self.is_of_now(at):
            return False
        who = (steps.node, steps.ranks[0] if steps.ranks else WHOLE_JOB)
        known = self._words.pop(who, None)
        if known is not None and at <= known.at:
            self._words[who] = known
            return False
        anew = self._is_anew(known, steps.step_kind, step, at - (took_s or 0.0))
        begins = steps.step_kind == "first" and took_s is None
        # The caller begins the epoch where it is anew: the word is of that one.
        self._words[who] = _Word(self.epoch + anew, step, at, begins)
        if len(self._words) > REPORTERS_MAX:
            self._words.popitem(last=False)
        if self._step_first is None:
            self._step_first = step
        return anew

    def _is_anew(self, known: _Word | None, kind: StepKind, step: int, began_at: float) -> bool:
        if known is None:
            # A node that is new to the job; all nodes of a job make the same first step.
            return kind == "first" and self._step_first not in (None, step)
        if known.epoch < self.epoch:
            return False
        if step < known.step:
            return True
        return kind == "first" and not known.begins and began_at >= known.at
