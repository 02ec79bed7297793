"""What the fold counts. Conservation: records = used + late + duplicate + rejected + control."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """Since the fold was made; `Begin` does not set them back.

    lost     holes in the sequence numbers that nobody filled
    skewed   records whose time was corrected
    junk     values outside their physical range
    findings opened findings by detector
    """

    records: int = 0
    used: int = 0
    late: int = 0
    duplicate: int = 0
    rejected: int = 0
    control: int = 0
    lost: int = 0
    skewed: int = 0
    junk: int = 0
    findings: dict[str, int] = {}
    reasons: dict[str, int] = {}
    last_reason: str = ""  # of the newest rejected record, whole
    first_at: float | None = None
    last_at: float | None = None

    def conserved(self) -> bool:
        """Whether every record is accounted for, once."""
        kinds = self.used + self.late + self.duplicate + self.rejected + self.control
        return self.records == kinds

    def span(self, at: float) -> None:
        """One more event time."""
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        if self.last_at is None or at > self.last_at:
            self.last_at = at

    def reject(self, reason: str) -> None:
        """Count one rejected record, its reason without the numbers in it; reasons are bounded."""
        self.rejected += 1
        self.last_reason = reason
        key = reason[:120]
        if key in self.reasons or len(self.reasons) < 100:
            self.reasons[key] = self.reasons.get(key, 0) + 1
        else:
            self.reasons["other"] = self.reasons.get("other", 0) + 1


class Coverage(msgspec.Struct, frozen=True):
    """Who should report, how many do, and who is blind."""

    expected: int
    reporting: int
    blind: list[str]
