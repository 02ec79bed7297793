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
_PLAIN = rb": *+([!-~]++) "  # faster still; what else than a number it took is found out later
_FIELD = re.compile(rb" {0,8}([^:|\r\n]{1,64})" + _VALUE)
_END = rb"\|?[ \t\r\f\v]{0,8}(?:\n|\Z)"
_NONE = -1


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in a line's values each quantity stands, -1 for nowhere."""

    loss: int = _NONE
    grad_norm: int = _NONE
    time: int = _NONE
    per_s: float = 1.0  # what the printed time is divided by
    throughput: int = _NONE
    unit: str = ""
    nan_iterations: int = _NONE
    loss_scale: int = _NONE
    more: tuple[str, ...] = ()
    of_more: Callable[[Sequence[float]], tuple[float, ...]] = itemgetter(_NONE, _NONE)


class Layout:
    """The layout of one log's step lines."""

    def __init__(self) -> None:
        self._regex: re.Pattern[bytes] | None = None
        self._places = _Places()
        self._learned = 0

    def match(self, block: bytes, position: int) -> re.Match[bytes] | None:
        """The whole line that starts there, with its end; None where it is of another layout.

        Its groups are those of `HEAD` and one a field.
        """
        return self._regex.match(block, position) if self._regex is not None else None

    def loss(self, said: Sequence[bytes]) -> float | None:
        """None: one rank prints such lines, so none of them is a repeat."""
        return None

    def values(self, said: Sequence[bytes]) -> list[float] | None:
        """The numbers of a line's fields; None where the line is special."""
        try:
            values = [*map(float, said), 0.0]  # the last is for what is nowhere
        except ValueError:
            return None
        if values[self._places.nan_iterations] > 0.0 or not isfinite(sum(values)):
            return None
        return values

    def step(self, number: int, values: Sequence[float]) -> Step:
        """The step of `values`."""
        places = self._places
        took = values[places.time] / places.per_s
        norm = values[places.grad_norm]
        more = dict(zip(places.more, places.of_more(values)))  # noqa: B905 - an argument costs
        if values[places.loss_scale] == -1.0:
            del more["loss_scale"]
        return Step(
            "megatron", number, None, round(took, 9) if took > 0.0 else None, None,
            values[places.loss] if places.loss >= 0 else None,
            norm if norm != 0.0 else None,
            values[places.throughput] if places.throughput >= 0 else None,
            places.unit, more=more,
        )  # fmt: skip

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
        one_blank = all(part.endswith(b" ") and not part.endswith(b"  ") for part in parts[:-1])
        value = _PLAIN if one_blank else _VALUE
        fields_regex = [rb" *+" + re.escape(name) + value for name in names[:-1]]
        fields_regex.append(rb" *+" + re.escape(names[-1]) + _VALUE)
        self._regex = re.compile(HEAD.pattern + rb"\|".join(fields_regex) + _END)
        self._places = _places(words)
        self._learned += 1


def _places(names: tuple[str, ...]) -> _Places:
    plan = plan_of(names)
    place = {name: at for at, name in enumerate(names)}
    return _Places(
        loss=place.get(plan.loss, _NONE), grad_norm=place.get(plan.grad_norm, _NONE),
        time=place.get(plan.ms or plan.seconds, _NONE), per_s=1000.0 if plan.ms else 1.0,
        throughput=place.get(plan.throughput, _NONE), unit=plan.unit,
        nan_iterations=place.get("numberofnaniterations", _NONE),
        loss_scale=place.get("lossscale", _NONE),
        more=tuple(ours for _, ours in plan.more),
        # two places at least, so that it gives a tuple
        of_more=itemgetter(*(place[name] for name, _ in plan.more), _NONE, _NONE),
    )  # fmt: skip
