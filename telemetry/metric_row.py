"""What a row of the metric catalogue is, and how the rows are written."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from telemetry.findings import Kind

Device = Literal["gpu", "nic", "disk", "node"]
MetricKind = Literal["gauge", "counter", "state", "bitmask"]
Direction = Literal["high", "low", "none"]
MetricClass = Literal["abnormal", "performance", "context"]

INF = math.inf


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    source        which source's frames carry it, and so at which interval it is expected
    valid_min, valid_max   physical range of the value as it travels; outside it is junk, not data
    bad           the direction that hurts; "none" is never compared
    class_        "abnormal" should be zero, "performance" should match the peers, "context" is
                  shown only
    family        the incident kind that it is evidence for
    effect_min    smallest deviation that matters, in `unit` (counters: `unit` per second)
    names         what exporters call it
    scale         theirs times this is ours
    width_bits    where a counter wraps
    optional      exporters print it only where asked, or only some do: its absence is no fault
    saturates_at  where a counter stops rising; there it says nothing any more
    """

    name: str
    device: Device
    source: str
    kind: MetricKind
    unit: str
    class_: MetricClass
    names: tuple[str, ...]
    bad: Direction = "high"
    family: Kind = "host"
    effect_min: float = 0.0
    valid_min: float = 0.0
    valid_max: float = INF
    scale: float = 1.0
    width_bits: int = 64
    optional: bool = False
    saturates_at: float | None = None

    @property
    def judged(self) -> bool:
        """Whether peers may be compared on it: categories never meet a z-score."""
        return self.kind in ("gauge", "counter") and self.bad != "none" and self.class_ != "context"

    @property
    def judged_unit(self) -> str:
        """The unit of what is compared."""
        return f"{self.unit}/s" if self.kind == "counter" else self.unit


def gpu(name: str, unit: str, class_: MetricClass, *names: str, **more: object) -> Metric:
    """A gauge of a GPU, unless told otherwise."""
    return msgspec.convert(
        {"name": name, "device": "gpu", "source": "gpu", "kind": "gauge", "unit": unit,
         "class_": class_, "names": names, "family": "gpu_slow", **more},
        Metric,
    )  # fmt: skip


def nic(name: str, class_: MetricClass, *names: str, **more: object) -> Metric:
    """A counter of packets of a NIC port, unless told otherwise."""
    return msgspec.convert(
        {"name": name, "device": "nic", "source": "nic", "kind": "counter", "unit": "packets",
         "class_": class_, "names": names, "family": "nic_congested", **more},
        Metric,
    )  # fmt: skip


def host(name: str, unit: str, class_: MetricClass, *names: str, **more: object) -> Metric:
    """A gauge of the node as a whole, unless told otherwise."""
    return msgspec.convert(
        {"name": name, "device": "node", "source": "nic", "kind": "gauge", "unit": unit,
         "class_": class_, "names": names, "family": "host", **more},
        Metric,
    )  # fmt: skip
