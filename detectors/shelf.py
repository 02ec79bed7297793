"""Open evidence, found by node and by job. Bounded: what comes beyond it is counted and dropped."""

from __future__ import annotations

from collections.abc import Iterable

from detectors.story import Placed, told_of


class Shelf:
    """Indexes keep the order of arrival, so that a replay reads them alike."""

    def __init__(self, findings_max: int) -> None:
        self._findings_max = findings_max
        self._all: dict[str, Placed] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._by_job: dict[str, dict[str, None]] = {}
        self._told_of: dict[str, dict[str, None]] = {}
        self.dropped = 0

    def put(self, placed: Placed) -> None:
        """Keep the newest revision; a cleared finding leaves."""
        finding = placed.finding
        if finding.state == "clear":
            self._remove(finding.id)
            return
        if finding.id not in self._all:
            if len(self._all) >= self._findings_max:
                self.dropped += 1
                return
            self._by_node.setdefault(finding.node, {})[finding.id] = None
            self._by_job.setdefault(placed.job, {})[finding.id] = None
            self._told_of.setdefault(told_of(finding), {})[finding.id] = None
        else:
            first = self._all[finding.id]
            placed = Placed(finding, first.job, first.leaf, first.device, first.machine)
        self._all[finding.id] = placed

    def is_open(self, finding_id: str) -> bool:
        """Whether it was said and not cleared."""
        return finding_id in self._all

    def of_node(self, node: str) -> list[Placed]:
        """Open evidence on a node."""
        return [self._all[i] for i in self._by_node.get(node, ())]

    def about_node(self, node: str) -> list[Placed]:
        """Open evidence that other nodes give of a node."""
        return [self._all[i] for i in self._told_of.get(node, ())] if node else []

    def of_job(self, job: str) -> list[Placed]:
        """Open evidence on a job's nodes and on the job itself."""
        return [self._all[i] for i in self._by_job.get(job, ())]

    def items(self) -> list[Placed]:
        """All of it, in the order of arrival."""
        return list(self._all.values())

    def refill(self, evidence: Iterable[Placed]) -> None:
        """Resume from `items()`."""
        self._all, self._by_node, self._by_job, self._told_of = {}, {}, {}, {}
        for placed in evidence:
            self.put(placed)

    def _remove(self, finding_id: str) -> None:
        placed = self._all.pop(finding_id, None)
        if placed is None:
            return
        keys = (
            (self._by_node, placed.finding.node),
            (self._by_job, placed.job),
            (self._told_of, told_of(placed.finding)),
        )
        for index, key in keys:
            del index[key][finding_id]
            if not index[key]:
                del index[key]
