"""What a worker counts of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Totals:
    """What a worker did since it started, for its own metrics.

    skipped   records that were deleted before they were folded
    """

    records: int = 0
    published: int = 0
    muted: int = 0
    conflicts: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    loads: int = 0
    cold_starts: int = 0
    skipped: int = 0
    load_s: float = 0.0
    progressed_s: float = 0.0  # monotonic; of the last batch that was folded
