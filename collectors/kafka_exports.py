"""Exports of a Kafka topic, as other tools write them, into the archive's lines. Pure.

A form is a row of `FORMS`. Where an export leaves out where a record stood, its file's name says
so, as Kafka Connect's sinks name files: `<topic>+<partition>+<first offset>.json` (Confluent) and
`<topic>-<partition>-<first offset>.jsonl` (Aiven).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from telemetry.archive_line import ArchiveLine, read_line
from telemetry.codec import rejected
from telemetry.records import Rejected
from telemetry.topics import TELEMETRY

LINE_MAX = 16 * 1024 * 1024
_MS_MAX = 2**62
_ISO_MAX = 40


@dataclass(frozen=True, slots=True)
class Where:
    """What the file's name says; `offset` is that of the file's first record."""

    topic: str = TELEMETRY
    partition: int = 0
    offset: int | None = None


_NAMES = (
    re.compile(r"(?P<topic>.{1,249})\+(?P<partition>\d{1,9})\+(?P<offset>\d{1,19})\.json"),
    re.compile(r"(?P<topic>.{1,249})-(?P<partition>\d{1,9})-(?P<offset>\d{1,19})(?:\.[a-z]{0,5})?"),
)


def where_of(file_name: str) -> Where:
    """Topic, partition and first offset of "nodewarden.telemetry+0+0000000100.json.gz"."""
    bare = file_name.removesuffix(".gz")
    for pattern in _NAMES:
        hit = pattern.fullmatch(bare)
        if hit is not None:
            return Where(hit["topic"], int(hit["partition"]), int(hit["offset"]))
    return Where()


Object = dict[str, msgspec.Raw]
_OBJECT: msgspec.json.Decoder[Object] = msgspec.json.Decoder(Object)


@dataclass(frozen=True, slots=True)
class Form:
    """One tool's way to write a record as a line of JSON.

    keys   what every one of its lines holds
    only   what they may hold at all, empty where anything
    read   (line's object, its bytes, what the file's name says, number of the line from 0)
    """

    name: str
    keys: frozenset[str]
    read: Callable[[Object, bytes, Where, int], ArchiveLine | str]
    example: str
    source: str
    only: frozenset[str] = frozenset()

    def fits(self, names: Set[str]) -> bool:
        """Whether an object with these names is one of its lines."""
        return self.keys <= names and (not self.only or names <= self.only)


def form_of(line: bytes) -> Form | None:
    """The form of an export by one of its lines; None where it is none."""
    try:
        found = _OBJECT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return next((form for form in FORMS if form.fits(found.keys())), None)


def read_line_of(
    form: Form, line: bytes, where: Where, number: int, place: str
) -> ArchiveLine | Rejected | None:
    """The record of one line; None for an empty line, `Rejected` for a broken one."""
    bare = line.strip().removesuffix(b",")
    if not bare or bare in (b"[", b"]") or bare.startswith(b"% "):
        return None  # lists of Aiven's "json" form; kcat's remarks
    if len(line) > LINE_MAX:
        return rejected("line over 16 MB", line[:400], place)
    try:
        found = _OBJECT.decode(bare)
        if not form.fits(found.keys()):
            return rejected(f"no line of {form.name}", line, place)
        said = form.read(found, bare, where, number)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        return rejected(f"no line of {form.name}: {error}", line, place)
    return rejected(said, line, place) if isinstance(said, str) else said


# -- the forms


class _Kcat(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    payload: msgspec.Raw
    key: str | None = None
    tstype: str = "unknown"
    ts: int = -1
    headers: list[str | None] | dict[str, list[str | None]] = []


_KCAT = msgspec.json.Decoder(_Kcat)
_TYPES = {"create": "CreateTime", "logappend": "LogAppendTime"}


def _kcat(_: Object, line: bytes, __: Where, ___: int) -> ArchiveLine | str:
    row = _KCAT.decode(line)
    if isinstance(row.headers, dict):
        headers = [(name, v or "") for name, values in row.headers.items() for v in values]
    else:
        headers = [
            (k or "", v or "") for k, v in zip(row.headers[::2], row.headers[1::2], strict=False)
        ]
    return _line(
        row.topic, row.partition, row.offset, row.ts, _text_or_json(row.payload),
        _TYPES.get(row.tstype, "LogAppendTime"), row.key, headers,
    )  # fmt: skip


def _archived(_: Object, line: bytes, __: Where, ___: int) -> ArchiveLine | str:
    return read_line(line)


def _envelope(found: Object, _: bytes, where: Where, number: int) -> ArchiveLine | str:
    """Lenses' envelope: {"key", "value", "headers": {}, "metadata": {...}}."""
    meta = _OBJECT.decode(found["metadata"])
    headers = _OBJECT.decode(found["headers"]) if "headers" in found else {}
    return _line(
        _plain(meta.get("topic")) or where.topic, _int(meta.get("partition"), where.partition),
        _int(meta.get("offset"), _counted(where, number)), _millis(meta.get("timestamp")),
        _text_or_json(found["value"]), "LogAppendTime", _plain(found.get("key")),
        [(name, _plain(value) or "") for name, value in headers.items()],
    )  # fmt: skip


def _fields(found: Object, _: bytes, where: Where, number: int) -> ArchiveLine | str:
    """Aiven's sink: the fields that `format.output.fields` lists, perhaps base64."""
    return _line(
        where.topic, where.partition, _int(found.get("offset"), _counted(where, number)),
        _millis(found.get("timestamp")), _unpacked(found["value"]), "LogAppendTime",
        _plain(found.get("key")), [],
    )  # fmt: skip


def _schema(found: Object, _: bytes, where: Where, number: int) -> ArchiveLine | str:
    """JsonConverter with schemas.enable: {"schema", "payload"}."""
    return _bare({}, bytes(found["payload"]), where, number)


def _bare(_: Object, line: bytes, where: Where, number: int) -> ArchiveLine | str:
    """The value alone, as Confluent's JsonFormat writes it: it arrived when it happened."""
    at = _AT.decode(line)
    return _line(
        where.topic, where.partition, _counted(where, number),
        round((at.replayed or at.sent_at or at.at) * 1000.0), line, "CreateTime", None, [],
    )  # fmt: skip


class _At(msgspec.Struct):
    at: float
    sent_at: float | None = None
    replayed: float | None = None


_AT = msgspec.json.Decoder(_At)


def _line(
    topic: str, partition: int, offset: int, millis: int, value: bytes | None, type_: str,
    key: str | None, headers: list[tuple[str, str]],
) -> ArchiveLine | str:  # fmt: skip
    if not (0 <= partition < 2**31 and 0 <= offset < 2**63 and -1 <= millis < _MS_MAX):
        return f"partition {partition}, offset {offset}, time {millis} ms: no place in a log"
    return ArchiveLine(
        topic, partition, offset, millis, type_,
        tuple((name, text.encode("utf-8", "replace")) for name, text in headers),
        None if key is None else key.encode("utf-8", "replace"), value,
    )  # fmt: skip


def _counted(where: Where, number: int) -> int:
    return (where.offset or 0) + number


def _text_or_json(raw: msgspec.Raw) -> bytes | None:
    """A value that stands as JSON, or as a text that holds JSON; None for a tombstone."""
    data = bytes(raw)
    if data == b"null":
        return None
    return _decoded(raw).encode("utf-8", "replace") if data.startswith(b'"') else data


def _unpacked(raw: msgspec.Raw) -> bytes | None:
    """A value as JSON, as text, or as base64 of its text."""
    data = _text_or_json(raw)
    if data is None or data.lstrip()[:1] == b"{":
        return data
    return b64decode(data, validate=True)


def _decoded(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw, type=str))


def _plain(raw: msgspec.Raw | None) -> str | None:
    if raw is None or bytes(raw) == b"null":
        return None
    return _decoded(raw) if bytes(raw).startswith(b'"') else bytes(raw).decode("utf-8", "replace")


def _int(raw: msgspec.Raw | None, default: int) -> int:
    return default if raw is None else int(msgspec.json.decode(raw, type=int))


def _millis(raw: msgspec.Raw | None) -> int:
    """Milliseconds, from milliseconds, seconds or ISO 8601; -1 where nothing is said."""
    value: Any = None if raw is None else msgspec.json.decode(raw)
    if isinstance(value, str):
        bare = value[:_ISO_MAX]
        if not bare.isdecimal():
            moment = datetime.fromisoformat(bare)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000.0)
        value = int(bare)
    if not isinstance(value, (int, float)):
        return -1
    return round(value if value > 100_000_000_000 else value * 1000.0)


FORMS: tuple[Form, ...] = (
    Form("kcat -J", frozenset({"topic", "partition", "offset", "payload"}), _kcat,
         '{"topic":"nodewarden.telemetry","partition":0,"offset":7,"tstype":"logappend",'
         '"ts":1772020800123,"broker":1,"headers":["kind","frame"],"key":"main","payload":"{...}"}',
         "edenhill/kcat json.c; payloads unpacked with jq's fromjson too"),
    Form("an archive's line", frozenset({"topic", "partition", "offset", "timestamp"}), _archived,
         '{"topic":"nodewarden.telemetry","partition":0,"offset":7,"timestamp":1772020800123,'
         '"value":{...}}', "zstdcat of an archive"),
    Form("Kafka Connect, envelope", frozenset({"value", "metadata"}), _envelope,
         '{"key":"main","value":{...},"headers":{},"metadata":{"topic":"nodewarden.telemetry",'
         '"partition":0,"offset":7,"timestamp":1772020800123}}',
         "Lenses stream-reactor, store.envelope=true"),
    Form("Kafka Connect, schema and payload", frozenset({"schema", "payload"}), _schema,
         '{"schema":null,"payload":{"kind":"beat",...}}', "JsonConverter, schemas.enable=true"),
    Form("Kafka Connect, values", frozenset({"kind", "at", "node"}), _bare,
         '{"kind":"beat","at":1772020800.0,"node":"",...}',
         "Confluent S3 sink, JsonFormat; FileStreamSink with StringConverter"),
    Form("Kafka Connect, fields", frozenset({"value"}), _fields,
         '{"key":"main","offset":7,"timestamp":"2026-02-25T12:00:00Z","value":"eyJraW5kIjoi..."}',
         "Aiven sinks, format.output.type=jsonl or json",
         frozenset({"key", "value", "offset", "timestamp", "headers"})),
)  # fmt: skip


def read_export(
    form: Form, lines: Iterator[bytes], where: Where, place: str
) -> Iterator[ArchiveLine | Rejected]:
    """All records of one file, in its order."""
    number = 0
    for at, line in enumerate(lines, 1):
        said = read_line_of(form, line, where, number, f"{place}:{at}")
        if said is not None:
            number += 1
            yield said
