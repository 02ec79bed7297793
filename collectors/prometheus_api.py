"""Answers of Prometheus' HTTP API (`query_range`) as OpenMetrics lines with timestamps. Pure.

They are read by the one parser that reads dumps, so that a series means the same in both. An empty
matrix is "no data": neither zero nor an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from telemetry.codec import rejected
from telemetry.records import Rejected

BYTES_MAX = 1 << 30
BAD_SAID = 20  # rejected samples that are said one by one for each series
EXAMPLE = (
    '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":'
    '"DCGM_FI_DEV_GPU_TEMP","gpu":"0","Hostname":"n1"},"values":[[1772020800,"61"]]}]}}'
)
SOURCE = "Prometheus' HTTP API: query_range, query; several answers may follow each other"

_STARTS = re.compile(rb'\s{0,64}\{\s{0,64}"(?:status|data|metric|resultType)"\s{0,8}:')
_SERIES = re.compile(r'\{\s{0,64}"(?:metric|values?)"\s{0,8}:')
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,1000}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,1000}")
_NUMBER = re.compile(r"[0-9A-Za-z+.\-]{1,64}")
_LABELS_MAX = 128
_WORK_SHARE = 16  # what may be spent on values that prove broken, in lengths of the file


class _Data(msgspec.Struct):
    result: list[msgspec.Raw]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    errorType: str = ""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


_ANSWER = msgspec.json.Decoder(_Answer)
_ONE = msgspec.json.Decoder(_Series)


def is_answer(first: bytes) -> bool:
    """Whether a file's first bytes are such an answer."""
    return _STARTS.match(first) is not None


def metric_lines(pieces: Iterator[bytes], place: str) -> Iterator[bytes | Rejected]:
    """A file of a capture's metrics as OpenMetrics text, whichever of both it holds."""
    first = next(pieces, b"")
    if not is_answer(first):
        yield first
        yield from pieces
        return
    data, size = [first], len(first)
    for piece in pieces:
        size += len(piece)
        if size <= BYTES_MAX:
            data.append(piece)
    if size > BYTES_MAX:
        why = f"more than {BYTES_MAX >> 20} MB of JSON: query less at a time"
        yield rejected(why, data[0][:400], place)
    yield from read_answers(b"".join(data), place)


def read_answers(data: bytes, place: str) -> Iterator[bytes | Rejected]:
    """Lines "name{labels} value time", a piece a series, and what could not be read."""
    try:
        answer = _ANSWER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield from _salvaged(data, place, str(error))
        return
    if answer.status != "success":
        told = f"{answer.errorType}: {answer.error}".strip(": ") or answer.status
        yield rejected(f"Prometheus answered {told}", data[:400], place)
    for number, raw in enumerate(answer.data.result if answer.data is not None else (), 1):
        yield from _read(bytes(raw), f"{place}#{number}")


def _read(raw: bytes, place: str) -> Iterator[bytes | Rejected]:
    try:
        series = _ONE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _slowly(raw, place)
        return
    prefix = _prefix(series.metric)
    if isinstance(prefix, str):
        yield rejected(prefix, raw[:400], place)
        return
    samples = series.values if series.value is None else [*series.values, series.value]
    yield from _lines(prefix, samples, place)


def _lines(
    prefix: bytes, samples: list[tuple[float, str]], place: str
) -> Iterator[bytes | Rejected]:
    good = [
        b"%s%s %s\n" % (prefix, value.encode(), repr(at).encode())
        for at, value in samples
        if _NUMBER.fullmatch(value)
    ]
    if len(good) < len(samples):
        bad = next(pair for pair in samples if not _NUMBER.fullmatch(pair[1]))
        why = f"{len(samples) - len(good)} samples that hold no number"
        yield rejected(why, f"{prefix.decode()}{bad}".encode("utf-8", "replace"), place)
    if good:
        yield b"".join(good)


def _slowly(raw: bytes, place: str) -> Iterator[bytes | Rejected]:
    """A series of which something has a wrong type: what is right is taken."""
    try:
        value = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        yield rejected(f"no series: {error}", raw[:400], place)
        return
    yield from _loose(value, raw, place)


def _loose(value: Any, raw: bytes, place: str) -> Iterator[bytes | Rejected]:
    metric = value.get("metric") if isinstance(value, dict) else None
    if not isinstance(metric, dict):
        yield rejected("no series: it has no metric", raw[:400], place)
        return
    prefix = _prefix({str(k): v for k, v in metric.items() if isinstance(v, str)})
    if isinstance(prefix, str):
        yield rejected(prefix, raw[:400], place)
        return
    pairs = value.get("values", [])
    pairs = pairs if isinstance(pairs, list) else []
    samples: list[tuple[float, str]] = []
    bad = 0
    for pair in [*pairs, *([value["value"]] if "value" in value else [])]:
        sample = _sample(pair)
        if sample is None:
            bad += 1
        else:
            samples.append(sample)
    if bad:
        yield rejected(f"{bad} samples that are no [time, text]", raw[:400], place)
    yield from _lines(prefix, samples, place)


def _sample(pair: Any) -> tuple[float, str] | None:
    if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool):
        return None
    if not isinstance(pair[0], (int, float)) or not isinstance(pair[1], (str, int, float)):
        return None
    try:
        return float(pair[0]), str(pair[1])
    except (ValueError, OverflowError):
        return None


def _salvaged(data: bytes, place: str, why: str) -> Iterator[bytes | Rejected]:
    """The whole series of a file that is cut, damaged, or holds several answers."""
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = found = errors = 0
    work = _WORK_SHARE * len(text) + 65_536
    while work > 0 and (hit := _SERIES.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, hit.start())
        except (ValueError, RecursionError) as error:
            work -= getattr(error, "pos", len(text)) - hit.start()
            errors += 1
            at = hit.end()
            continue
        found += 1
        yield from _loose(value, text[hit.start() : hit.start() + 400].encode(), f"{place}#{found}")
    if not found or errors or not _is_joined(text):
        yield rejected(f"no whole answer: {why}", data[:400], place)


def _is_joined(text: str) -> bool:
    """Whether the text is nothing but whole JSON values."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at >= len(text):
            return True
        try:
            _, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return False


def _prefix(metric: dict[str, str]) -> bytes | str:
    """'name{a="b"} ', or why the series cannot be used."""
    name = metric.get("__name__", "")
    if not name:
        return "a series without a name: an expression's result; query the metric itself"
    if _NAME.fullmatch(name) is None or len(metric) > _LABELS_MAX:
        return "a series with a name or labels that no exporter writes"
    labels = ",".join(
        f'{label}="{_escaped(value)}"'
        for label, value in sorted(metric.items())
        if label != "__name__" and _LABEL.fullmatch(label)
    )
    return f"{name}{{{labels}}} ".encode("utf-8", "replace")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
