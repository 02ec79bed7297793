"""Single values of one moment into the frames that carry them, one a source. Pure."""

from __future__ import annotations

from collectors.names import natural
from telemetry.metrics import BY_NAME, CATALOGUE, Metric
from telemetry.records import Frame

CELLS_MAX = 65_536  # of one moment; a node has some hundreds
_RANK = {row.name: rank for rank, row in enumerate(CATALOGUE)}


class Cells:
    """(metric, entity) -> value. Who tells first is believed: several exporters may tell the same.

    left_out   values beyond `CELLS_MAX`
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, dict[str, float | None]]] = {}
        self._devices: dict[str, str] = {}
        self._count = 0
        self.left_out = 0

    def add(self, metric: Metric, entity: str, value: float | None) -> None:
        """One value; None where the device had none."""
        column = self._sources.setdefault(metric.source, {}).setdefault(metric.name, {})
        if entity in column:
            return
        if self._count >= CELLS_MAX:
            self.left_out += 1
            return
        column[entity] = value
        self._devices[metric.name] = metric.device
        self._count += 1

    def frame(self, source: str, node: str, boot_id: str, at_s: float) -> Frame | None:
        """Every metric has one value or null per entity of its device class; None: no values."""
        columns = self._sources.get(source)
        if not columns:
            return None
        frame = Frame(
            at=at_s, node=node, source=source, boot_id=boot_id, started_at=0.0, seq=0,
            entities={}, metrics={},
        )  # fmt: skip
        return self._frame(columns, frame)

    def join(self, other: Cells, source: str) -> None:
        """Take over what `other` knows of a source and nobody here has told."""
        for name, column in other._sources.get(source, {}).items():
            for entity, value in column.items():
                self.add(BY_NAME[name], entity, value)

    def _frame(self, columns: dict[str, dict[str, float | None]], frame: Frame) -> Frame:
        found: dict[str, set[str]] = {}
        for name, column in columns.items():
            found.setdefault(self._devices[name], set()).update(column)
        for device in sorted(found):
            frame.entities[device] = sorted(found[device], key=natural)
        for name in sorted(columns, key=lambda name: _RANK[name]):
            column = columns[name]
            frame.metrics[name] = [column.get(one) for one in frame.entities[self._devices[name]]]
        return frame
