"""Simulated telemetry onto the disk: as a topic archive, or as the files of a site's tools."""

from __future__ import annotations

from pathlib import Path

from evaluation.capture import write_capture
from evaluation.places import fresh_directory, write_json
from evaluation.simulator import Simulation
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.topics import TELEMETRY

__all__ = ["write_archive", "write_capture"]


def write_archive(run: Simulation, out: Path) -> int:
    """The run as partition 0 of the live telemetry topic, with `truth.json`; records written.

    Raises InputError where `out` is not an empty or new directory.
    """
    fresh_directory(out)
    key = run.settings.shard.encode()
    offset = -1
    with ArchiveWriter(out, TELEMETRY, 0) as writer:
        for offset, (arrival_s, record) in enumerate(run.records()):
            kind = str(record.__struct_config__.tag).encode()
            writer.append(offset, round(arrival_s * 1000.0), encode(record), key, [("kind", kind)])
    write_json(out / "truth.json", run.truth())
    return offset + 1
