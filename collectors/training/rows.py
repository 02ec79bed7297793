"""Rows of Hugging Face's Trainer, `{'loss': 0.2, 'grad_norm': nan, ...}`, read fast, as `megatron`
reads its lines: the first teaches the layout."""

from __future__ import annotations

import re

from collectors.training.fields import FIELDS_MAX, Plan, fill, plan_of
from collectors.training.model import Step

START = b"{'"
LAYOUTS_MAX = 32  # learned in one log; beyond it rows are read as all other lines
LINE_MAX = 2_048

_VALUE = rb"(nan|-?inf|[-+]?[\d.]{1,24}+(?:[eE][-+]?\d{1,4}+)?)"
_NAME = rb"([a-z][a-z0-9_/]{0,39})"
_PAIR = re.compile(rb"'" + _NAME + rb"': " + _VALUE)
_ROW = re.compile(rb"\{" + _PAIR.pattern + rb"(?:, " + _PAIR.pattern + rb"){0,63}\}")
_END = rb"[ \t]{0,8}+(?:\r?\n|\r|\Z)"
_OTHERS = frozenset({b"eval_loss", b"train_runtime"})  # of rows that tell of no step


class Layout:
    """The layout of one log's rows."""

    def __init__(self) -> None:
        self._regex: re.Pattern[bytes] | None = None
        self._names: tuple[str, ...] = ()
        self._plan: Plan | None = None
        self._learned = 0

    def read(self, block: bytes, position: int) -> tuple[Step | None, int]:
        """What the row that starts there says, and where it ends, line end and all; None where it
        is of another layout, which is then learned, or holds what is no number."""
        found = self._regex.match(block, position) if self._regex is not None else None
        if found is None:
            self._learn(block, position)
            return None, position
        try:
            values = [*map(float, found.groups())]
        except ValueError:
            return None, position
        named = dict(zip(self._names, values))  # noqa: B905 - an argument costs
        return fill(Step("hugging-face"), named, self._plan), found.end()

    def _learn(self, block: bytes, position: int) -> None:
        if self._learned >= LAYOUTS_MAX:
            return
        found = _ROW.match(block, position, position + LINE_MAX)
        if found is None:
            return
        names = [one[1] for one in _PAIR.finditer(found[0])]
        words = tuple(name.decode("ascii").replace("_", "") for name in names)
        if b"loss" not in names or _OTHERS & {*names} or len(names) > FIELDS_MAX:
            return
        if len({*words}) != len(words):
            return
        pairs = rb", ".join(b"'" + re.escape(name) + b"': " + _VALUE for name in names)
        self._regex = re.compile(rb"\{" + pairs + rb"\}" + _END)
        self._names, self._plan = words, plan_of(words)
        self._learned += 1
