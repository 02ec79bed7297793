"""Exports of nodewarden's topics by other Kafka tools, as a log that replays like an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collectors.files import lines, pieces
from collectors.kafka_exports import (
    LINE_MAX,
    Form,
    Where,
    form_of,
    read_export,
    read_line_of,
    where_of,
)
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode, rejected
from telemetry.errors import InputError
from telemetry.placement import Placement
from telemetry.records import Arrived, Rejected
from telemetry.topics import BY_NAME, TELEMETRY

SUFFIXES = (".json", ".jsonl", ".txt", ".gz")
FILES_MAX = 100_000
SNIFFED_LINES = 20


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One file: its form, what its name says, and where its first record stands."""

    path: Path
    form: Form
    where: Where
    first: tuple[str, int, int] = field(compare=False, default=("", 0, 0))


def is_export(path: Path) -> bool:
    """Whether a file is such an export, or a directory holds one."""
    return any(_sniffed(file) is not None for file in _candidates(path)[:SNIFFED_LINES])


def export_files(path: Path) -> list[ExportFile]:
    """The files in the order of their first records."""
    found = [sniffed for file in _candidates(path) if (sniffed := _sniffed(file)) is not None]
    return sorted(found, key=lambda file: (file.first, file.path.name))


def partitions_of(files: list[ExportFile], topic: str = TELEMETRY) -> list[int]:
    """The partitions that the exports hold records of."""
    return sorted({
        line.partition
        for line in _lines(files, [])
        if isinstance(line, ArchiveLine) and line.topic == topic
    })  # fmt: skip


def export_lines(
    files: list[ExportFile], torn: list[str], repeats: list[int]
) -> Iterator[ArchiveLine | Rejected]:
    """All records of nodewarden's topics, each once; of a partition in rising order.

    repeats   filled with the number of records that stood at a place already read
    """
    last: dict[tuple[str, int], int] = {}
    for line in _lines(files, torn):
        if isinstance(line, Rejected):
            yield line
            continue
        place = (line.topic, line.partition)
        if line.topic not in BY_NAME:
            yield _foreign(line)
        elif line.offset <= last.get(place, -1):
            repeats[0] += 1
        else:
            last[place] = line.offset
            yield line


def export_records(
    files: list[ExportFile], partition: int, torn: list[str], repeats: list[int],
    placement: Placement,
) -> Iterator[Arrived]:  # fmt: skip
    """One partition of the telemetry topic, decoded. What could not be read at all stands beside
    the records around it, in the log of the first partition."""
    offset, now = 0, 0.0
    for line in export_lines(files, torn, repeats):
        if isinstance(line, Rejected):
            yield Arrived(offset, now, line)
        elif line.topic == TELEMETRY and line.partition == partition:
            place = f"{line.topic}/{line.partition}@{line.offset}"
            data = b"null" if line.value is None else line.value
            record = decode(data, place)
            if why := placement.fault(line.key_text, record):
                record = rejected(why, data, place, record.at)
            now = arrival_of(line, record.at if record.at is not None else now)
            offset = line.offset
            yield Arrived(offset, now, record)


def arrival_of(line: ArchiveLine, at_s: float) -> float:
    """The log's time of the record, or its own where the export leaves it out."""
    return line.timestamp_ms / 1000.0 if line.timestamp_ms >= 0 else at_s


def _foreign(line: ArchiveLine) -> Rejected:
    return Rejected(
        reason=f"topic {line.topic!r} is none of nodewarden's",
        text=(line.value or b"")[:400].decode("utf-8", "replace"),
        place=f"{line.topic}/{line.partition}@{line.offset}",
    )


def _lines(files: list[ExportFile], torn: list[str]) -> Iterator[ArchiveLine | Rejected]:
    for file in files:
        source = lines(pieces(file.path, _teller(file.path, torn), lambda _: None), LINE_MAX)
        yield from read_export(file.form, source, file.where, file.path.name)


def _teller(path: Path, torn: list[str]) -> Callable[[str], None]:
    return lambda why: torn.append(f"{path.name}: {why}")


def _candidates(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return sorted(
        file for file in path.rglob("*") if file.is_file() and file.name.endswith(SUFFIXES)
    )[:FILES_MAX]


def _sniffed(file: Path) -> ExportFile | None:
    try:
        source = lines(pieces(file, lambda _: None, lambda _: None), LINE_MAX)
        for number, line in enumerate(source):
            if number >= SNIFFED_LINES:
                return None
            form = form_of(line.strip().removesuffix(b","))
            if form is not None:
                where = where_of(file.name)
                first = read_line_of(form, line, where, 0, file.name)
                stands = (
                    (first.topic, first.partition, first.offset)
                    if isinstance(first, ArchiveLine) else ("", 0, 0)
                )  # fmt: skip
                return ExportFile(file, form, where, stands)
    except InputError:
        return None  # it is no text: somebody else's file
    return None
