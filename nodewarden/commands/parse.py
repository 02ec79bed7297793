"""`nodewarden parse KIND [FILE...]`: what nodewarden makes of a file or of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from collectors.files import pieces
from collectors.kinds import DATED, KINDS, Reader
from collectors.zones import zone_named
from telemetry.errors import InputError

PIECE_BYTES = 1 << 20


@click.command("parse")
@click.argument("kind", type=click.Choice(sorted(KINDS)), metavar="KIND")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE...]")
@click.option("--tz", metavar="Z", help="Time zone of times that name none, as Europe/Berlin.")
def command(kind: str, files: tuple[Path, ...], tz: str | None) -> None:
    """Print one JSON object a record; an ordinary line gives nothing, a broken one "rejected"."""
    reader = _reader(kind, tz)
    if not files:
        _print(reader("-", _standard_input(sys.stdin.buffer)))
    for file in files:
        if file.is_dir():
            raise InputError(f"{file}: is a directory; give its files, or replay it")
        if not file.is_file():
            raise InputError(f"{file}: no such file; give a readable file or none for stdin")
        _print(reader(str(file), pieces(file, lambda _: None, lambda _: None)))


def _reader(kind: str, tz: str | None) -> Reader:
    if tz is None:
        return KINDS[kind]
    zone, dated = zone_named(tz, "--tz"), DATED.get(kind)
    if dated is None:
        raise InputError(f"--tz: {kind} has no times that name no zone; leave it out")
    return lambda file, pieces: dated(file, pieces, zone)


def _print(objects: Iterator[dict[str, object]]) -> None:
    for found in objects:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


def _standard_input(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece
