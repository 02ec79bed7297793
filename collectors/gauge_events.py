"""Xids that an exporter shows as gauges, into events: a fold over successive scrapes. Pure.

The gauge of the last Xid keeps its code until the exporter restarts, so only a rise of it is news
and a fall is no recovery. The windowed count forgets after five minutes: a rise is that many new
Xids, a fall is their ageing out. What is there at the first scrape is history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from telemetry.records import Event
from telemetry.xids import lookup

SOURCE = "exporter"
SUBJECTS_MAX = 200_000
EVENTS_OF_ONE_RISE_MAX = 16
WINDOW_S = 300.0  # dcgm-exporter's default; what was last seen longer ago has aged out
SAME_XID_S = 60.0  # the gauge and the count of one exporter tell the same Xid within this
CODE_MAX = 1_000

Form = Literal["last", "window", "total"]

# catalogue name -> what its value says
FORM_OF: dict[str, Form] = {
    "gpu_last_xid_code": "last",
    "gpu_xid_window_events": "window",
    "gpu_xid_events_total": "total",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One gauge in one scrape.

    form      "last" (value is the code), "window" or "total" (value counts those of `code`)
    instance  the GPU with its MIG instance: "GPU-…/7"; "" where no label names one
    value     None where the exporter had none
    first     the node's first scrape of all: what it shows happened before
    """

    node: str
    instance: str
    form: Form
    at_s: float
    value: float | None
    code: int = 0
    first: bool = False


class GaugeEvents:
    """Feed the scrapes of a node in the order of their time."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}  # (node, instance) -> code shown
        self._count: dict[tuple[str, str, int], tuple[float, float]] = {}  # -> count, at_s
        self._said: dict[tuple[str, str, int], tuple[float, Form]] = {}

    def read(self, reading: Reading) -> list[Event]:
        """What happened since the scrape before."""
        if reading.value is None:
            return []
        if reading.form == "last":
            return self._of_last(reading, int(reading.value))
        return self._of_count(reading, reading.value)

    def _of_last(self, reading: Reading, code: int) -> list[Event]:
        key = (reading.node, reading.instance)
        before = self._last.pop(key, None)
        _bounded(self._last)
        self._last[key] = code
        if before is None and reading.first:
            return []
        if code == before or not 0 < code <= CODE_MAX:
            return []
        return self._said_once(reading, code, 1)

    def _of_count(self, reading: Reading, count: float) -> list[Event]:
        key = (reading.node, _gpu(reading.instance), reading.code)
        before = self._count.pop(key, None)
        _bounded(self._count)
        self._count[key] = (count, reading.at_s)
        if before is None and reading.first:
            return []
        aged = reading.form == "window" and before and reading.at_s - before[1] > WINDOW_S
        risen = int(count - (0.0 if before is None or aged else before[0]))
        if reading.form == "total" and risen < 0:  # the exporter started anew
            risen = int(count)
        if risen <= 0 or not 0 < reading.code <= CODE_MAX:
            return []
        return self._said_once(reading, reading.code, min(risen, EVENTS_OF_ONE_RISE_MAX))

    def _said_once(self, reading: Reading, code: int, times: int) -> list[Event]:
        """Not again what another instance of the GPU, or its other gauge, has told just now."""
        key = (reading.node, _gpu(reading.instance), code)
        said = self._said.pop(key, None)
        _bounded(self._said)
        self._said[key] = (reading.at_s, reading.form)
        if said is not None and reading.at_s - said[0] < SAME_XID_S:
            of_other_form = said[1] != reading.form
            of_other_instance = reading.form == "last" and said[0] == reading.at_s
            if of_other_form or of_other_instance:
                self._said[key] = said
                return []
        return [_event(reading, code) for _ in range(times)]


def xid_label(labels: Mapping[str, str]) -> int:
    """The code of a count's series, 0 where no label tells it."""
    word = labels.get("xid", "") or labels.get("err_code", "")
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= 4 else 0


def _gpu(instance: str) -> str:
    return instance.partition("/")[0]


def _bounded(kept: dict[Any, Any]) -> None:
    while len(kept) >= SUBJECTS_MAX:
        del kept[next(iter(kept))]


def _event(reading: Reading, code: int) -> Event:
    row = lookup(code)
    gpu = _gpu(reading.instance)
    how = "last Xid" if reading.form == "last" else "count of Xids"
    meaning = f" ({row.meaning})" if row is not None else ""
    return Event(
        at=reading.at_s, node=reading.node, source=SOURCE, started_at=0.0, seq=0,
        type="xid", code=code, entity=f"gpu:{gpu}" if gpu else "",
        severity=row.severity if row is not None else "warning",
        class_=row.class_ if row is not None else "unknown",
        text=f"the exporter's {how} on {gpu or 'a GPU'} rose: Xid {code}{meaning}",
    )  # fmt: skip
