"""torchtitan's step lines, read fast, as `megatron` reads its own: the first teaches the layout.

A line is `step: 4  loss: 7.6  name: value  ...`, with or without the logger's head, a rank's label
and colours; a field that nobody asks for is passed over without being read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isfinite
from operator import itemgetter

from collectors.training.fields import MORE, plan_of, squeezed
from collectors.training.model import Step

LAYOUTS_MAX = 32  # learned in one log; beyond it lines are read as all others
LINE_MAX = 1_024
FIELDS_MAX = 16

_COLOUR = rb"(?:\x1b\[[\d;]{0,16}m)?"
HEAD = re.compile(
    rb"(?!std)([\w.-]{1,20}+: {1,4}+)?(\[[A-Za-z_]{1,20}+\d{1,7}+\]: ?+)?"
    rb"(?:(?:\[\w{1,12}+\] )?(20\d\d-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)[.,](\d{1,9}+)"
    rb" - \w{1,12}+ - INFO - )?"
    + _COLOUR + rb"step: {1,12}+(\d[\d,]{0,11}+) {1,4}+" + _COLOUR + rb"(?=loss: )"
)  # fmt: skip
"""Prefix, label, minute, second, fraction, step; the fields follow."""

_READ = rb": {1,12}+([-+\d.,eE]{1,24}+)"  # what is no number is found out later, which is faster
_EXACT = re.compile(rb"(?:[-+]?[\d.,]{1,24}+(?:[eE][-+]?\d{1,4}+)?(?: |\Z))++")
_PASSED = rb": {1,12}+[\w.()%/+-]{1,40}+"
_GAP = rb" {1,12}+"
_FIELD = re.compile(rb"(\w{1,40}): {1,12}([\w.,()%/+-]{1,40})")
_BETWEEN = re.compile(_GAP + _COLOUR)
_END = rb"[ \t\r]{0,8}(?:\n|\Z)"
_WANTED = frozenset({*MORE, "gradnorm", "loss"})


class Layout:
    """The layout of one log's step lines."""

    def __init__(self) -> None:
        self._regex: re.Pattern[bytes] | None = None
        self._norm: int | None = None
        self._rate: tuple[int, str] | None = None
        self._more: tuple[str, ...] = ()
        self._of_more: Callable[[Sequence[float]], tuple[float, ...]] = itemgetter(0, 0)
        self._learned = 0

    def match(self, block: bytes, position: int) -> re.Match[bytes] | None:
        """The whole line that starts there, with its end; None where it is of another layout.

        Its groups are those of `HEAD` and one for each field that counts.
        """
        return self._regex.match(block, position) if self._regex is not None else None

    def loss(self, said: Sequence[bytes]) -> float | None:
        """A line's loss before its other numbers are read, None where that is not known yet."""
        try:
            return float(said[0]) if b"e" not in said[0].lower() else None
        except ValueError:
            return None

    def values(self, said: Sequence[bytes]) -> list[float] | None:
        """The numbers of a line that matched, the loss first; None where the line is special."""
        words = b" ".join(said)
        if b"e" in words.lower() and _EXACT.fullmatch(words) is None:
            return None
        try:
            values = [*map(float, words.replace(b",", b"").split())]
        except ValueError:
            return None
        return values if len(values) == len(said) and isfinite(sum(values)) else None

    def step(self, number: int, values: Sequence[float]) -> Step:
        """The step of `values`."""
        step = Step("torchtitan", number)
        step.loss = values[0]
        if self._norm is not None and values[self._norm] != 0.0:
            step.grad_norm = values[self._norm]
        if self._rate is not None:
            step.throughput, step.throughput_unit = values[self._rate[0]], self._rate[1]
        step.more = dict(zip(self._more, self._of_more(values)))  # noqa: B905 - an argument costs
        return step

    def learn(self, block: bytes, position: int) -> None:
        """Take the line that starts there as the layout of the next ones, if it is such a line."""
        head = HEAD.match(block, position) if self._learned < LAYOUTS_MAX else None
        if head is None:
            return
        names = _names(block, head.end())
        words = tuple(squeezed(name.decode("ascii")) for name in names)
        if not names or len(set(words)) != len(words):
            return
        wanted = [word for word in words if word in _WANTED]
        if not _simple(words) or plan_of(tuple(wanted)) != plan_of(words):
            return
        fields = (
            re.escape(name) + (_READ + b"%?" if word in _WANTED else _PASSED)
            for name, word in zip(names, words, strict=True)
        )
        colour = _COLOUR if b"\x1b" in block[position : head.end() + LINE_MAX] else b""
        head_regex = HEAD.pattern if colour else HEAD.pattern.replace(_COLOUR, b"")
        self._regex = re.compile(head_regex + (_GAP + colour).join(fields) + colour + _END)
        self._places(wanted)
        self._learned += 1

    def _places(self, wanted: list[str]) -> None:
        plan, place = plan_of(tuple(wanted)), {name: at for at, name in enumerate(wanted)}
        self._norm = place.get("gradnorm")
        self._rate = (place[plan.throughput], plan.unit) if plan.throughput else None
        if "tps" in place:  # a rate of the job goes before one of its GPUs
            self._rate = place["tps"], "tokens/s"
        self._more = tuple(ours for _, ours in plan.more)
        # two places at least, so that it gives a tuple
        self._of_more = itemgetter(*(place[name] for name, _ in plan.more), 0, 0)


def _names(block: bytes, position: int) -> list[bytes]:
    """Of a line's fields in their order; none where it holds anything else."""
    names: list[bytes] = []
    while (found := _FIELD.match(block, position)) is not None and len(names) < FIELDS_MAX:
        names.append(found[1])
        gap = _BETWEEN.match(block, found.end())
        position = gap.end() if gap is not None else found.end()
    return names if names[:1] == [b"loss"] else []


def _simple(words: tuple[str, ...]) -> bool:
    """Whether no field has a meaning that `Layout.step` does not know."""
    plan = plan_of(words)
    special = {"numberofnaniterations", "lossscale"} & {*words}
    return plan.loss == "loss" and plan.grad_norm in ("", "gradnorm") and not (
        plan.ms or plan.seconds or special
    )  # fmt: skip
