"""Answers of Prometheus' HTTP API as runs, for a collector that sees the same series every few
seconds: a series' labels are read once, then known by the bytes in which they come. Pure.

What has another form is left to `collectors.prometheus_api`, which says what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from collectors.openmetrics import SERIES_MAX, OpenMetricsParser, Run
from collectors.prometheus_api import read_answers
from collectors.series import Series, clean_one, number, read_series
from telemetry.codec import AT_MAX_S, AT_MIN_S
from telemetry.records import Rejected

FEW = 64  # samples of one series; more are read by the parser of dumps, in bulk


class _Series(msgspec.Struct):
    metric: msgspec.Raw
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data


_ANSWER = msgspec.json.Decoder(_Answer)
_LABELS = msgspec.json.Decoder(dict[str, str])


class RunReader:
    """Reads the answers of one server."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._known: dict[bytes, Series | None] = {}

    def read(self, answer: bytes) -> Iterator[Run | Rejected]:
        """The runs of what is ours; of what is not usable a `Rejected`."""
        try:
            found = _ANSWER.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield from self._slowly(answer)
            return
        strange: list[_Series] = []
        for one in found.data.result:
            run = self._run(one) if found.status == "success" else None
            if run is not None:
                yield run
            elif one.values:
                strange.append(one)
        if strange or found.status != "success":
            rest = msgspec.json.encode(_Answer(found.status, _Data(strange)))
            yield from self._slowly(rest)

    def _run(self, one: _Series) -> Run | None:
        """None where the parser of dumps has to look at it."""
        key = bytes(one.metric)
        if key not in self._known:
            if len(self._known) >= SERIES_MAX:
                self._known.clear()
            self._known[key] = _series(one.metric)
        series = self._known[key]
        if series is None or not 0 < len(one.values) <= FEW:
            return None
        times, values = [], []
        for at_s, text in one.values:
            value = number(text.encode())
            if value is None or not AT_MIN_S <= at_s < AT_MAX_S:
                return None
            times.append(at_s)
            values.append(_cleaned(series, value, text))
        return Run(series, np.array(times), np.array(values, dtype=np.float64))

    def _slowly(self, answer: bytes) -> Iterator[Run | Rejected]:
        parser = OpenMetricsParser(self._place)
        for piece in read_answers(answer, self._place):
            if isinstance(piece, Rejected):
                yield piece
            else:
                yield from parser.feed(piece)
        yield from parser.finish()


def _cleaned(series: Series, value: float, text: str) -> float:
    if series.metric is None:  # of a loss NaN is news, see collectors.openmetrics
        return value if math.isfinite(value) else math.inf
    cleaned, _ = clean_one(series.metric, value, text.encode())
    return math.nan if cleaned is None else cleaned


def _series(metric: msgspec.Raw) -> Series | None:
    """None where it is not ours, or unusable."""
    try:
        labels = _LABELS.decode(metric)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name = labels.pop("__name__", "")
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    found = read_series(name, text.encode("utf-8", "replace"))
    return found if isinstance(found, Series) else None


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
