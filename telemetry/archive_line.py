"""One line of an archive: a Kafka record as JSON, its value embedded as it was.

`value` is the original JSON, null for a tombstone; `value_b64` stands instead where the value was
no JSON, the literal null, or held a line break (or blanks around it, which would be lost).
`key_b64` stands instead of `key` where the key was no UTF-8.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

LINE_MAX = 16 * 1024 * 1024
_DEPTH_MAX = 200

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Millis = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class ArchiveLine(msgspec.Struct, frozen=True, gc=False):
    """One archived record.

    timestamp_ms  the broker's append time or the producer's, as `timestamp_type` says; -1 unknown
    key, value    the original bytes; None where there was none (a value of None is a tombstone)
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None
    value: bytes | None

    @property
    def key_text(self) -> str | None:
        """The key as text; ours are names."""
        return None if self.key is None else self.key.decode("utf-8", "replace")


class _Base64(msgspec.Struct):
    b64: str


class _Line(msgspec.Struct):
    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    offset: Offset
    timestamp: Millis
    timestamp_type: str = "LogAppendTime"
    headers: list[tuple[str, str | _Base64 | None]] = []
    key: str | None = None
    value: Raw | UnsetType = UNSET
    value_b64: str | None = None
    key_b64: str | None = None


_LINE = msgspec.json.Decoder(_Line)
_ANY = msgspec.json.Decoder(Raw)
_TEXT = msgspec.json.Encoder()


def write_line(line: ArchiveLine) -> bytes:
    """`line` as it stands in the file, line break included."""
    head = (
        f'{{"topic":{_quoted(line.topic)},"partition":{line.partition},"offset":{line.offset},'
        f'"timestamp":{line.timestamp_ms},"timestamp_type":{_quoted(line.timestamp_type)},'
        f'"headers":{_headers(line.headers)},{_key(line.key)},'
    )
    return head.encode() + _value(line.value) + b"}\n"


def read_line(data: bytes) -> ArchiveLine | str:
    """The record in `data`, one line without its break, or the reason why it is none."""
    try:
        line = _LINE.decode(data)
        return ArchiveLine(
            line.topic,
            line.partition,
            line.offset,
            line.timestamp,
            line.timestamp_type,
            tuple([(name, _unheader(value)) for name, value in line.headers]),
            _unkey(line),
            _unvalue(line),
        )
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return str(error) or type(error).__name__


def embeddable(value: bytes) -> bool:
    """Whether `value` can stand in a line as it is and come back as the same bytes."""
    if b"\n" in value or b"\r" in value or value == b"null":
        return False
    # Another reader may allow less depth than we have left; deep values travel as base64.
    depth = _DEPTH_MAX if value.count(b"[") + value.count(b"{") > _DEPTH_MAX else 0
    try:
        value.decode("utf-8")
        found = _ANY.decode(b"[" * depth + value + b"]" * depth)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return len(bytes(found)) == len(value) + 2 * depth


def _value(value: bytes | None) -> bytes:
    if value is None:
        return b'"value":null'
    if embeddable(value):
        return b'"value":' + value
    return b'"value_b64":"' + b64encode(value) + b'"'


def _key(key: bytes | None) -> str:
    if key is None:
        return '"key":null'
    text = _as_text(key)
    return f'"key_b64":"{_base64(key)}"' if text is None else f'"key":{_quoted(text)}'


def _headers(headers: Sequence[tuple[str, bytes]]) -> str:
    parts = []
    for name, value in headers:
        text = _as_text(value)
        shown = f'{{"b64":"{_base64(value)}"}}' if text is None else _quoted(text)
        parts.append(f"[{_quoted(name)},{shown}]")
    return f"[{','.join(parts)}]"


def _unvalue(line: _Line) -> bytes | None:
    if line.value_b64 is not None:
        return b64decode(line.value_b64, validate=True)
    if line.value is UNSET:
        raise msgspec.ValidationError("Object missing required field `value` or `value_b64`")
    value = bytes(line.value)
    return None if value == b"null" else value


def _unkey(line: _Line) -> bytes | None:
    if line.key_b64 is not None:
        return b64decode(line.key_b64, validate=True)
    return None if line.key is None else line.key.encode()


def _unheader(value: str | _Base64 | None) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else b64decode(value.b64, validate=True)


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _quoted(text: str) -> str:
    return _TEXT.encode(text).decode()


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
