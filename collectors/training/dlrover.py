"""DLRover's event lines: a step, a save, each with a begin and an end."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

from collectors.training.fields import fill, numbers
from collectors.training.model import Note, Step
from collectors.training.plain_json import decoded
from collectors.training.stamps import printed

MARKER = "] [#"
EXAMPLE = (
    "[2025-04-21T23:53:35.596206] [426] [22b7ca89] [AtorchTrainerV2] [#step] [END]"
    ' {"global_step": 177019, "consumed_train_samples": 15456}'
)
OPEN_MAX = 1_024

_LINE = re.compile(
    r"\[20[\dT:. -]{10,40}\] \[\d{1,10}\] \[(?P<id>\w{1,64})\] \[[^\]]{1,200}\]"
    r" \[#(?P<what>\w{1,40})\] \[(?P<phase>BEGIN|END|INSTANT)\] (?P<rest>.*)"
)


class DlRover:
    """One log."""

    def __init__(self, tz: tzinfo) -> None:
        self._tz = tz
        self._open: OrderedDict[str, float] = OrderedDict()

    def read(self, text: str) -> Iterator[Step | Note | str]:
        """What one line says; a reason in words where it is broken."""
        found = _LINE.match(text.strip())
        if found is None:
            return
        at_s, fields = printed(text.strip(), self._tz), decoded(found["rest"])
        if at_s is None or not isinstance(fields, dict):
            yield "event line without a time or fields"
            return
        if found["phase"] == "BEGIN":
            self._open[found["id"]] = at_s
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
            return
        began_s = self._open.pop(found["id"], None)
        took_s = at_s - began_s if began_s is not None and at_s > began_s else None
        yield from _ended(found["what"], at_s, took_s, fields)


def _ended(
    what: str, at_s: float, took_s: float | None, fields: dict[str, Any]
) -> Iterator[Step | Note]:
    number = fields.get("global_step")
    step = number if isinstance(number, int) and 0 <= number < 10**12 else None
    if what == "step":
        yield Step("dlrover", step, at_s, step_time_s=took_s,
                   more={f"{name}": value for name, value in numbers(
                       (name, fields.get(name)) for name in ("epoch",)).items()})  # fmt: skip
    elif what == "save":
        yield Note("checkpoint", at_s, step, apart=True, more={"duration_s": took_s})
    elif what in ("evaluate", "predict"):
        yield Note("evaluation", at_s, step, apart=True, more={"duration_s": took_s})
    elif what == "log" and isinstance(fields.get("logs"), dict):
        said = fill(Step("dlrover-log", step, at_s), numbers(fields["logs"].items()))
        if said.step_time_s is not None:  # since the line before: with the pause between steps
            said.more["interval_s"], said.step_time_s = said.step_time_s, None
        yield said
