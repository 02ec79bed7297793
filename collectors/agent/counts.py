"""What the agent counts of itself. Several threads add, each to names of its own."""

from __future__ import annotations

from collections import Counter


class Counts:
    """Totals by (name, label), and when each source last worked, Unix seconds."""

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, str]] = Counter()
        self.last_success_s: dict[str, float] = {}

    def add(self, name: str, count: int = 1, label: str = "") -> None:
        """Add to a total; also 0, so that it is shown."""
        self.totals[name, label] += count

    def set(self, name: str, count: int) -> None:
        """A total that is counted elsewhere."""
        self.totals[name, ""] = count

    def succeeded(self, source: str, at_s: float) -> None:
        """A source worked."""
        self.last_success_s[source] = at_s
