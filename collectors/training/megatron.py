"""Megatron-LM's step lines, read fast: a log's lines all have the same fields in the same order.

The first line teaches the layout, the next ones are matched whole by it; a line of another layout
is read as every other line and teaches anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import itemgetter

from collectors.training.fields import FIELDS_MAX, LINE_MAX, plan_of, squeezed
from collectors.training.model import Step

LAYOUTS_MAX = 32  # learned in one log; beyond it lines are read as all others

HEAD = re.compile(
    rb"([\w.-]{1,64}: {1,4})?(\[[A-Za-z_]{1,20}\d{1,7}\]: ?)? {0,4}"
    rb"(?:\[(20\d\d-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(?:[.,](\d{1,9}))?\] )?"
    rb"iteration {1,40}(\d{1,12}) ?/ {0,40}\d{1,12} {0,8}\|"
)
"""Prefix, label, minute, second, fraction, iteration."""

_VALUE = rb": *+([^ |_\n]++) *+"  # nothing to try again: half the time
_FIELD = re.compile(rb" {0,8}([^:|\r\n]{1,64})" + _VALUE)
_END = rb"\|?[ \t\r\f\v]{0,8}(?:\n|\Z)"
_NONE = -1


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in a line's values each quantity stands, -1 for nowhere."""

    loss: int
    grad_norm: int
    time: int
    per_s: float  # what the printed time is divided by
    throughput: int
    unit: str
    nan_iterations: int
    loss_scale: int
    more: tuple[str, ...]
    of_more: Callable[[Sequence[float]], tuple[float, ...]]


class Layout:
    """The layout of one log's step lines."""

    def __init__(self) -> None:
        self._regex: re.Pattern[bytes] | None = None
        self._places: _Places | None = None
        self._learned = 0

    def match(self, block: bytes, position: int) -> re.Match[bytes] | None:
        """The whole line that starts there, with its end, in the groups of `HEAD` and one a field;
        None where it is of another layout."""
        return self._regex.match(block, position) if self._regex is not None else None

    def step(self, number: bytes, said: Sequence[bytes]) -> Step | None:
        """The step of a line that matched, of its last groups; None where the line is special."""
        places = self._places
        try:
            values = [*map(float, said), 0.0]  # the last is for what is nowhere
        except ValueError:
            return None
        if places is None or values[places.nan_iterations] > 0.0 or not isfinite(sum(values)):
            return None
        took = values[places.time] / places.per_s
        norm = values[places.grad_norm]
        step = Step("megatron", int(number))
        step.step_time_s = round(took, 9) if took > 0.0 else None
        step.loss = values[places.loss] if places.loss >= 0 else None
        step.grad_norm = norm if norm != 0.0 else None
        step.throughput = values[places.throughput] if places.throughput >= 0 else None
        step.throughput_unit = places.unit
        step.more = more = dict(zip(places.more, places.of_more(values)))  # noqa: B905 - an argument costs
        if values[places.loss_scale] == -1.0:
            del more["loss_scale"]
        return step

    def learn(self, block: bytes, position: int) -> None:
        """Take the line that starts there as the layout of the next ones, if it is such a line."""
        head = HEAD.match(block, position) if self._learned < LAYOUTS_MAX else None
        if head is None:
            return
        end = block.find(b"\n", head.end())
        fields = block[head.end() : end if end >= 0 else None]
        if len(fields) > LINE_MAX or not fields.isascii():
            return
        parts = fields.rstrip().rstrip(b"|").split(b"|")
        found = [_FIELD.fullmatch(part) for part in parts]
        if not 0 < len(parts) <= FIELDS_MAX or None in found:
            return
        names = [one[1] for one in found if one is not None]
        words = tuple(squeezed(name.decode("ascii")) for name in names)
        if len(set(words)) != len(words):
            return
        fields_regex = rb"\|".join(rb" {0,8}+" + re.escape(name) + _VALUE for name in names)
        self._regex = re.compile(HEAD.pattern + fields_regex + _END)
        self._places = _places(words)
        self._learned += 1


def _places(names: tuple[str, ...]) -> _Places:
    plan = plan_of(names)
    place = {name: at for at, name in enumerate(names)}
    indices = [place[name] for name, _ in plan.more]
    return _Places(
        loss=place.get(plan.loss, _NONE), grad_norm=place.get(plan.grad_norm, _NONE),
        time=place.get(plan.ms or plan.seconds, _NONE), per_s=1000.0 if plan.ms else 1.0,
        throughput=place.get(plan.throughput, _NONE), unit=plan.unit,
        nan_iterations=place.get("numberofnaniterations", _NONE),
        loss_scale=place.get("lossscale", _NONE),
        more=tuple(ours for _, ours in plan.more),
        # two places at least, so that it gives a tuple
        of_more=itemgetter(*indices, _NONE, _NONE),
    )  # fmt: skip
