"""Frames, which come by time, into OpenMetrics text, which is ordered by series.

Each metric's values wait in a file of their own, so that memory does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from evaluation.cluster import Cluster
from evaluation.noise import FloatArray
from telemetry.metrics import BY_NAME, Metric
from telemetry.records import Frame

_ROWS_BUFFERED = 1_024
_NODES_AT_ONCE = 128
_WHOLE = 2.0**53
# The catalogue knows these by their bare names only, under any exporter's prefix.
_NODE_EXPORTER = {
    "nic_rnr_retry_errors_total": "node_infiniband_rnr_nak_retry_err_total",
    "nic_adaptive_retransmissions_total": "node_infiniband_roce_adp_retrans_total",
}


class Spill:
    """One metric's values on disk: rows of (node position, time, one value per unit), float64."""

    def __init__(self, path: Path, metric: Metric, units: int) -> None:
        self.metric = metric
        self._path = path
        self._width = 2 + units
        self._rows: list[list[float | None]] = []

    def add(self, place: int, at_s: float, values: Sequence[float | None]) -> None:
        """One scrape of one node; null becomes NaN here and no line later."""
        self._rows.append([place, at_s, *values])
        if len(self._rows) >= _ROWS_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Put the buffered rows onto the disk."""
        if self._rows:
            with self._path.open("ab") as out:
                np.array(self._rows, dtype=np.float64).tofile(out)
            self._rows = []

    def by_node(self, nodes: int) -> Iterator[tuple[int, FloatArray]]:
        """(node position, its rows in order of time), by position."""
        self.flush()
        if not self._path.exists():
            return
        rows = np.memmap(self._path, dtype=np.float64, mode="r").reshape(-1, self._width)
        places = rows[:, 0]
        for first in range(0, nodes, _NODES_AT_ONCE):
            block = rows[(places >= first) & (places < first + _NODES_AT_ONCE)]
            block = block[np.argsort(block[:, 0], kind="stable")]
            edges = np.searchsorted(block[:, 0], np.arange(first, first + _NODES_AT_ONCE + 1))
            for offset in range(min(_NODES_AT_ONCE, nodes - first)):
                yield first + offset, np.asarray(block[edges[offset] : edges[offset + 1]])


class SeriesWriter:
    """Frames of one source in, one OpenMetrics file out."""

    def __init__(self, directory: Path, cluster: Cluster, metrics: Sequence[str] | None) -> None:
        self._directory = directory
        self._cluster = cluster
        self._wanted = None if metrics is None else frozenset(metrics)
        self._spills: dict[str, Spill] = {}

    def add(self, frame: Frame) -> None:
        """Keep one frame."""
        place = self._cluster.index[frame.node]
        for name, values in frame.metrics.items():
            spill = self._spills.get(name)
            if spill is None:
                if self._wanted is not None and name not in self._wanted:
                    continue
                path = self._directory / f"{name}.f64"
                spill = self._spills[name] = Spill(path, BY_NAME[name], len(values))
            spill.add(place, frame.at, values)

    def write(self, out: BinaryIO) -> None:
        """All series by (metric, node, device), and the end mark."""
        for name in sorted(self._spills, key=lambda name: _theirs(BY_NAME[name])):
            spill = self._spills[name]
            for place, rows in spill.by_node(self._cluster.nodes):
                if len(rows):
                    self._write_node(out, spill.metric, place, rows)
        out.write(b"# EOF\n")

    def _write_node(self, out: BinaryIO, metric: Metric, place: int, rows: FloatArray) -> None:
        stamps = [f" {at_s:.3f}\n" for at_s in rows[:, 1].tolist()]
        for unit, labels in enumerate(self._labels(metric, place)):
            prefix = f"{_theirs(metric)}{{{labels}}} "
            texts = _texts(rows[:, 2 + unit])
            out.write(
                "".join(
                    [
                        f"{prefix}{text}{stamp}"
                        for text, stamp in zip(texts, stamps, strict=True)
                        if text is not None
                    ]
                ).encode()
            )

    def _labels(self, metric: Metric, place: int) -> list[str]:
        node = self._cluster.names[place]
        if metric.device == "node":
            return [f'instance="{node}:9100",job="node"']
        if metric.device == "nic":
            ports = [port.name.split("/") for port in self._cluster.port_list()]
            return [
                f'device="{device}",instance="{node}:9100",job="node",port="{port}"'
                for device, port in ports
            ]
        return [
            f'Hostname="{node}",UUID="{gpu.uuid}",gpu="{gpu.index}",'
            f'pci_bus_id="0000{gpu.pci.upper()}.0"'
            for gpu in self._cluster.gpu_list(place)
        ]


def _theirs(metric: Metric) -> str:
    """What an exporter calls it."""
    return metric.names[0] if metric.names else _NODE_EXPORTER[metric.name]


def _texts(values: FloatArray) -> Sequence[str | None]:
    """Numbers as Prometheus prints them, None where there is none."""
    missing = np.isnan(values)
    kept = values[~missing] if missing.any() else values
    if bool(((kept == np.floor(kept)) & (np.abs(kept) < _WHOLE)).all()):
        texts = [str(number) for number in kept.astype(np.int64).tolist()]
    else:
        texts = [repr(number).removesuffix(".0") for number in kept.tolist()]
    if len(kept) == len(values):
        return texts
    found = iter(texts)
    return [None if gap else next(found) for gap in missing.tolist()]
