"""torchtitan's step lines, read fast, as `megatron` reads its own: the first teaches the layout.

A line is `step: 4  loss: 7.6  name: value  ...`, with or without the logger's head, a rank's label
and colours; a field that nobody asks for is passed over without being read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite

from collectors.training.fields import MORE, plan_of, squeezed
from collectors.training.model import Step

LAYOUTS_MAX = 32  # learned in one log; beyond it lines are read as all others
LINE_MAX = 1_024
FIELDS_MAX = 16

_COLOUR = rb"(?:\x1b\[[\d;]{0,16}m)?"
HEAD = re.compile(
    rb"(?!std)([\w.-]{1,20}: {1,4})?(\[[A-Za-z_]{1,20}\d{1,7}\]: ?)?"
    rb"(?:(?:\[\w{1,12}\] )?(20\d\d-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)[.,](\d{1,9})"
    rb" - \w{1,12} - INFO - )?"
    + _COLOUR + rb"step: {1,12}(\d[\d,]{0,11}) {1,4}" + _COLOUR + rb"(?=loss: )"
)  # fmt: skip
"""Prefix, label, minute, second, fraction, step; the fields follow."""

_READ = rb": {1,12}([-+]?[\d.,]{1,24}+(?:[eE][-+]?\d{1,4}+)?)"
_PASSED = rb": {1,12}[\w.()%/+-]{1,40}+"
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
        self._more: tuple[tuple[str, int], ...] = ()
        self._learned = 0

    def match(self, block: bytes, position: int) -> re.Match[bytes] | None:
        """The whole line that starts there, with its end, in the groups of `HEAD` and one for each
        field that counts; None where it is of another layout."""
        return self._regex.match(block, position) if self._regex is not None else None

    def step(self, number: bytes, said: Sequence[bytes]) -> Step | None:
        """The step of a line that matched, of its last groups; None where the line is special."""
        try:
            values = [*map(float, b" ".join(said).replace(b",", b"").split(b" "))]
        except ValueError:
            return None
        if not isfinite(sum(values)):
            return None
        step = Step("torchtitan", int(number.replace(b",", b"")))
        step.loss = values[0]
        if self._norm is not None and values[self._norm] != 0.0:
            step.grad_norm = values[self._norm]
        if self._rate is not None:
            step.throughput, step.throughput_unit = values[self._rate[0]], self._rate[1]
        step.more = {ours: values[at] for ours, at in self._more}
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
        self._regex = re.compile(HEAD.pattern + (_GAP + colour).join(fields) + colour + _END)
        self._places(wanted)
        self._learned += 1

    def _places(self, wanted: list[str]) -> None:
        plan, place = plan_of(tuple(wanted)), {name: at for at, name in enumerate(wanted)}
        self._norm = place.get("gradnorm")
        self._rate = (place[plan.throughput], plan.unit) if plan.throughput else None
        if "tps" in place:  # a rate of the job goes before one of its GPUs
            self._rate = place["tps"], "tokens/s"
        self._more = tuple((ours, place[name]) for name, ours in plan.more)


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
