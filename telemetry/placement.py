"""Whether a record stands in the partition of its shard: its key says which it was meant for."""

from __future__ import annotations

from collections.abc import Collection

from telemetry.records import Begin, Record, Rejected, Settings

_FIRST = (Settings, Begin)  # nothing is taken before one of them, so they name the shard


class Placement:
    """The keys of one partition.

    shard   its name; None where only the log itself can tell
    others  names that are known to be those of other partitions
    """

    def __init__(self, shard: str | None, others: Collection[str] = ()) -> None:
        self.shard = shard
        self._others = others

    def fault(self, key: str | None, record: Record | Rejected) -> str | None:
        """Why the record does not belong here; one without a key is taken."""
        if key is None or key == self.shard:
            return None
        if self.shard is None and key not in self._others:
            if isinstance(record, _FIRST):
                self.shard = key
            return None
        return f"the record of shard {key[:80]!r} in the partition of another"
