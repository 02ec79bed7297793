"""Megatron-LM's step lines, read fast: a log's lines all have the same fields in the same order.

The first line teaches the layout, the next ones are matched whole by it; a line of another layout
is read field by field and teaches anew.
"""

from __future__ import annotations

import re

from collectors.training.fields import FIELDS_MAX, LINE_MAX, Plan, fill, piped, plan_of, squeezed
from collectors.training.model import Step

LAYOUTS_MAX = 32  # learned in one log; beyond it lines are read field by field

HEAD = re.compile(
    rb"(?P<prefix>[\w.-]{1,64}: {1,4})?(?P<label>\[[A-Za-z_]{1,20}\d{1,7}\]: ?)?"
    rb" {0,4}(?P<date>\[20[\d:., T-]{17,30}\] )?iteration {1,40}(?P<step>\d{1,12}) ?/ {0,40}"
    rb"\d{1,12} {0,8}\|"
)
_VALUE = r": {0,40}([-+]?(?:\d[\d.]{0,24}(?:[eE][-+]?\d{1,4})?|nan|inf)) {0,40}"
_NAME = re.compile(r" {0,8}([^:|\n]{1,64})" + _VALUE)


class Layout:
    """The layout of one log's step lines."""

    def __init__(self) -> None:
        self._regex: re.Pattern[str] | None = None
        self._names: tuple[str, ...] = ()
        self._plan: Plan | None = None
        self._learned = 0

    def read(self, number: int, text: str) -> Step | None:
        """The step whose fields follow; None where there is no field at all."""
        if self._regex is not None:
            found = self._regex.match(text)
            if found is not None:
                return self._known(number, found)
        values = piped(text)
        if not values:
            return None
        self._learn(text)
        return fill(Step("megatron", number), values)

    def _known(self, number: int, found: re.Match[str]) -> Step | None:
        try:
            values = dict(zip(self._names, map(float, found.groups()), strict=True))
        except ValueError:
            return None
        return fill(Step("megatron", number), values, self._plan)

    def _learn(self, text: str) -> None:
        if self._learned >= LAYOUTS_MAX or len(text) > LINE_MAX:
            return
        parts = text.rstrip().rstrip("|").split("|")
        found = [_NAME.fullmatch(part) for part in parts]
        if not 0 < len(parts) <= FIELDS_MAX or None in found:
            return
        names = [one[1] for one in found if one is not None]
        self._names = tuple(squeezed(name) for name in names)
        if len(set(self._names)) != len(names):
            return
        self._regex = re.compile(
            r"\|".join(rf" {{0,8}}{re.escape(name)}{_VALUE}" for name in names) + r"\|?\s{0,8}$"
        )
        self._plan = plan_of(self._names)
        self._learned += 1
