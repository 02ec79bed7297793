"""Which files of an archive have outlived their use. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from streams.archive_store import KeptFile
from telemetry.archive import ArchiveFile
from telemetry.ports import Place
from telemetry.settings import ArchiveSettings
from telemetry.topics import STATE, TELEMETRY

_DAY_S = 86_400.0


def expired(
    files: Sequence[KeptFile], settings: ArchiveSettings, snapshots_s: float, now_s: float
) -> list[ArchiveFile]:
    """The files to remove, oldest first; never the newest of a partition.

    Snapshots go when telemetry does that could start from them, not by their own age: one is whole
    in `snapshots_s` of the state topic's records.
    """
    partitions = _by_place(files)
    ages = sorted(
        (found for place, kept in partitions.items() if place[0] != STATE for found in kept[:-1]),
        key=lambda found: (found.modified_s, found.file),
    )
    snapshots = _Snapshots(partitions, snapshots_s)
    total = sum(found.bytes for found in files)
    gone: list[ArchiveFile] = []
    for found in ages:
        old = settings.keep_days > 0.0 and now_s - found.modified_s > settings.keep_days * _DAY_S
        if not old and not 0 < settings.keep_bytes < total:
            break
        for freed in (found, *snapshots.freed_with(found)):
            gone.append(freed.file)
            total -= freed.bytes
    return gone


class _Snapshots:
    """The state topic's files, given up partition by partition as telemetry goes."""

    def __init__(self, partitions: dict[Place, list[KeptFile]], snapshots_s: float) -> None:
        self._partitions = partitions
        self._snapshots_s = snapshots_s

    def freed_with(self, found: KeptFile) -> list[KeptFile]:
        """The state files that nothing needs once `found` and all before it are gone."""
        topic, number = found.file.topic, found.file.partition
        state = self._partitions.get((STATE, number))
        if topic != TELEMETRY or not state:
            return []
        # What follows begins when this one ended. Two ends before that lie snapshots_s apart:
        # between them stands a whole snapshot, and what is older serves nobody.
        before = [at for at in state if at.modified_s <= found.modified_s]
        newest_s = before[-1].modified_s if before else -math.inf
        freed = [at for at in before[:-1] if newest_s - at.modified_s >= self._snapshots_s]
        self._partitions[STATE, number] = state[len(freed) :]
        return freed


def _by_place(files: Sequence[KeptFile]) -> dict[Place, list[KeptFile]]:
    ordered = sorted(files, key=lambda found: found.file)
    grouped = groupby(ordered, key=lambda found: (found.file.topic, found.file.partition))
    return {place: list(kept) for place, kept in grouped}
