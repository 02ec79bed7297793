"""Which shard a partition belongs to, where only the log tells, and what is foreign in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodewarden.logs import open_logs
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.placement import Placement
from telemetry.records import Beat, Begin, Record, Rejected, Settings
from telemetry.settings import Configuration, EngineSettings
from telemetry.topics import TELEMETRY

AT = 1.79e9
HEADER: dict[str, Any] = {"at": AT, "node": "", "source": "beat", "started_at": 0.0}
BEAT = Beat(**HEADER, seq=0)
BEGIN = Begin(**HEADER, seq=1)
SETTINGS = Settings(**HEADER, seq=2, digest="", engine_version="", settings=EngineSettings())


def test_the_first_settings_name_the_shard_of_a_log() -> None:
    placement = Placement(None)

    assert placement.fault("pod-7", SETTINGS) is None
    assert placement.fault("pod-7", BEAT) is None
    assert "pod-8" in (placement.fault("pod-8", BEAT) or "")


def test_a_begin_with_the_name_of_another_partition_names_nothing() -> None:
    placement = Placement(None, {"history"})

    assert placement.fault("history", BEGIN) is not None
    assert placement.fault("main", SETTINGS) is None
    assert placement.fault("main", BEAT) is None


def test_a_key_that_is_no_text_is_another_shards_also_in_an_archive(tmp_path: Path) -> None:
    log: list[tuple[Record, bytes | None]] = [
        (BEGIN, b"history"), (SETTINGS, b"main"), (BEAT, b"\xff\xfe"), (BEAT, None),
    ]  # fmt: skip
    with ArchiveWriter(tmp_path, TELEMETRY, 0) as writer:
        for offset, (record, key) in enumerate(log):
            writer.append(offset, round(AT * 1000.0), encode(record), key, [])

    (found,) = open_logs(tmp_path, Configuration(), None)

    kinds = [isinstance(arrived.record, Rejected) for arrived in found.records]
    assert kinds == [True, False, True, False]
