"""GPU and NIC readings of all nodes at one tick, as arrays.

Every usual metric of the catalogue's source is produced: gauges follow what the job does, counters
rise from a random start, faults are written over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.cluster import Cluster
from evaluation.fault_kinds import Touch
from evaluation.faults import Fault
from evaluation.look_alikes import POWER_CAP_MASK
from evaluation.noise import FloatArray, IntArray, Noise
from evaluation.training import HANG, IDLE, PAUSE
from telemetry.metrics import CATALOGUE, Metric

BoolArray = NDArray[np.bool_]

BLIP_SHARE = 0.0002
# Optional metrics that sites usually ask for, because faults show in them.
ASKED_FOR = frozenset(
    {
        "gpu_pcie_link_width_lanes", "gpu_row_remap_pending_state", "nic_port_state",
        "nic_physical_state", "nic_rnr_retry_errors_total", "nic_adaptive_retransmissions_total",
    }
)  # fmt: skip
# Levels of state metrics in a healthy device; InfiniBand: 4 is active, 5 is link up.
HEALTHY_STATES = {"nic_port_state": 4.0, "nic_physical_state": 5.0}
AUX_STATES = {"nic_port_state": 1.0, "nic_physical_state": 3.0}  # down, disabled
_INERTIA_S = 60.0
_SWING_KEEP = 0.95
_STALLED = ("gpu_framebuffer_used_mib", "gpu_framebuffer_free_mib")  # as in a hang, all else idle


@dataclass(frozen=True, slots=True)
class Gauge:
    """How one gauge behaves.

    levels   while training, pausing (checkpoint), hanging in a collective, idle
    weight   how much of the training level follows the load
    noise    sd of one reading; `node`, `unit`: sd of the lasting offsets; `swing`: shared by all
    """

    levels: tuple[float, float, float, float]
    weight: float = 0.0
    noise: float = 0.0
    node: float = 0.0
    unit: float = 0.0
    swing: float = 0.0
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """How one counter rises, per second; `start` bounds its random first value."""

    levels: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    weight: float = 0.0
    noise: float = 0.0
    start: float = 400.0


GPU_GAUGES: dict[str, Gauge] = {
    "gpu_temperature_celsius": Gauge((62, 54, 52, 36), 0.4, 0.6, 1.1, 0.9, 0.5),
    "gpu_memory_temperature_celsius": Gauge((71, 63, 60, 44), 0.4, 0.6, 1.1, 0.9, 0.5),
    "gpu_power_watts": Gauge((640, 240, 330, 95), 0.6, 14.0, 5.0, 5.0, 3.0, 3),
    "gpu_sm_clock_mhz": Gauge((1755, 1980, 1980, 1980), 0.0, 12.0, 3.0, 3.0, 2.0),
    "gpu_memory_clock_mhz": Gauge((2619, 2619, 2619, 2619)),
    "gpu_utilization_percent": Gauge((99, 18, 100, 0), 0.0, 0.7, 0.0, 0.0, 0.0),
    "gpu_memory_copy_utilization_percent": Gauge((52, 6, 1, 0), 0.8, 2.0, 0.3, 0.3, 0.3),
    "gpu_engine_active_ratio": Gauge((0.985, 0.2, 1.0, 0), 0.0, 0.005, 0.001, 0.001, 0.001, 6),
    "gpu_sm_active_ratio": Gauge((0.86, 0.08, 0.12, 0), 0.7, 0.012, 0.002, 0.002, 0.003, 6),
    "gpu_tensor_active_ratio": Gauge((0.46, 0.02, 0, 0), 1.0, 0.012, 0.002, 0.002, 0.003, 6),
    "gpu_dram_active_ratio": Gauge((0.42, 0.06, 0.01, 0), 0.9, 0.012, 0.002, 0.002, 0.003, 6),
    "gpu_pcie_transmit_bytes_per_second": Gauge((9e8, 2e8, 1e6, 1e5), 1.0, 3e7, 5e6, 5e6, 5e6),
    "gpu_pcie_receive_bytes_per_second": Gauge((8e8, 1e8, 1e6, 1e5), 1.0, 3e7, 5e6, 5e6, 5e6),
    "gpu_framebuffer_used_mib": Gauge((71_500, 71_500, 71_500, 3), unit=40.0),
    "gpu_framebuffer_free_mib": Gauge((9_579, 9_579, 9_579, 81_076), unit=40.0),
    "gpu_pcie_link_width_lanes": Gauge((16, 16, 16, 16)),
}
GPU_RATES: dict[str, Rate] = {
    "gpu_nvlink_bandwidth_total": Rate((250_000, 40_000, 2, 0), 1.0, 0.05, 1e9),
    "gpu_power_violation_us_total": Rate((20_000, 0, 0, 0), 0.0, 0.3, 1e9),
    "gpu_thermal_violation_us_total": Rate(start=1e6),
    "gpu_ecc_uncorrectable_volatile_total": Rate(start=1.0),
    "gpu_nvlink_recovery_error_total": Rate(start=3.0),
}
NIC_RATES: dict[str, Rate] = {
    "nic_receive_bytes_total": Rate((5e9, 2e9, 0, 0), 1.0, 0.04, 1e14),
    "nic_transmit_bytes_total": Rate((5e9, 3e9, 0, 0), 1.0, 0.04, 1e14),
    "nic_ecn_marked_packets_total": Rate(start=1e6),
    "nic_cnp_sent_packets_total": Rate(start=1e6),
    "nic_cnp_handled_packets_total": Rate(start=1e6),
    "nic_link_downed_total": Rate(start=4.0),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick of a source: per node its time, its time at the tick before, and the job's doing."""

    at_s: FloatArray
    before_s: FloatArray
    state: IntArray
    load: FloatArray

    def share(self, fault: Fault, place: int) -> float:
        """Share of the node's last interval during which the fault held, 0 to 1."""
        start_s, end_s = float(self.before_s[place]), float(self.at_s[place])
        held_s = sum(
            max(0.0, min(end_s, until_s) - max(start_s, from_s))
            for from_s, until_s in fault.spans()
        )
        return min(1.0, held_s / (end_s - start_s))

    def holds(self, fault: Fault, place: int) -> bool:
        """Whether the fault holds at the node's own time."""
        at_s = float(self.at_s[place])
        return any(from_s <= at_s < until_s for from_s, until_s in fault.spans())

    def begun(self, fault: Fault, place: int) -> int:
        """How often the fault began within the node's last interval."""
        start_s, end_s = float(self.before_s[place]), float(self.at_s[place])
        return sum(start_s < from_s <= end_s for from_s, _ in fault.spans())


class Devices:
    """All devices of one class on all nodes: `metrics` are the rows of `read`."""

    def __init__(
        self, cluster: Cluster, device: str, units: int, faults: Sequence[Fault], purpose: int
    ) -> None:
        rows = [
            m for m in CATALOGUE if m.device == device and (not m.optional or m.name in ASKED_FOR)
        ]
        self._noise = Noise(cluster.seed, purpose)
        self._shape = (cluster.nodes, units)
        self._gauges = [m for m in rows if m.kind == "gauge"]
        self._counters = [m for m in rows if m.kind == "counter"]
        self._states = [m for m in rows if m.kind in ("state", "bitmask")]
        self.metrics: list[Metric] = [*self._gauges, *self._counters, *self._states]
        self._row = {m.name: place for place, m in enumerate(self.metrics)}
        self._faults = [
            (fault, mine)
            for fault in faults
            if (mine := [t for t in fault.what.touches if t.metric in self._row])
            or fault.what.move > 0.0
        ]
        self._boots = [fault for fault in faults if fault.what.comeback == "boot"]
        self._gauge_setup(cluster.stages)
        self._counter_setup()
        self._state_setup(cluster.extra_port)

    @property
    def names(self) -> list[str]:
        """Metric names, the row order of `read`."""
        return [metric.name for metric in self.metrics]

    def read(self, moment: Moment) -> FloatArray:
        """Values, shape (nodes, metrics, units), rounded as exporters print them."""
        nodes, units = self._shape
        block = np.zeros((nodes, len(self.metrics), units))
        gauges = len(self._gauges)
        counters = gauges + len(self._counters)
        if gauges:
            self._read_gauges(block[:, :gauges], moment)
        rates = self._read_rates(moment)
        self._read_states(block, moment)
        for fault, touches in self._faults:
            if fault.onset_s > float(moment.at_s.max()):
                continue
            for place in fault.places:
                share = moment.share(fault, place)
                if share > 0.0:
                    self._move(fault, place, share, rates)
                    for touch in touches:
                        self._strike(touch, fault, place, share, block, rates, moment)
        self._finish(block[:, :gauges])
        self._total += rates * (moment.at_s - moment.before_s)[:, None, None]
        for fault in self._boots:
            for place in fault.places:
                if moment.before_s[place] < fault.back_s <= moment.at_s[place]:
                    self._total[place] = 0.0
        self._blips(moment)
        np.floor(self._total, out=block[:, gauges:counters])
        return block

    def _gauge_setup(self, stages: Sequence[int]) -> None:
        nodes, units = self._shape
        table = [GPU_GAUGES.get(m.name, Gauge((0, 0, 0, 0))) for m in self._gauges]
        self._levels = (
            np.array(
                [_with_stall(m.name, g.levels) for m, g in zip(self._gauges, table, strict=True)],
                dtype=np.float64,
            )
            .reshape(-1, 5)
            .T
        )
        self._weight = np.array([g.weight for g in table])
        self._noise_sd = np.array([g.noise for g in table])[:, None]
        self._swing_sd = np.array([g.swing for g in table])
        self._scale = np.array([10.0**g.digits for g in table])[:, None]
        self._low = np.array([m.valid_min for m in self._gauges])[:, None]
        self._high = np.array([m.valid_max for m in self._gauges])[:, None]
        by_node = self._noise.normal(nodes, len(table), 1)
        by_unit = self._noise.normal(nodes, len(table), units)
        spread = np.array([g.node for g in table])[:, None]
        # Stages do different work; whoever compares across them sees outliers that are none.
        by_stage = self._noise.normal(max(stages) + 1, len(table), 1)[list(stages)]
        self._offset = (by_node + 2.0 * by_stage) * spread
        self._offset = self._offset + by_unit * np.array([g.unit for g in table])[:, None]
        self._swing = np.zeros(len(table))
        self._slow = [row for row, m in enumerate(self._gauges) if m.unit == "celsius"]
        self._warmth = np.repeat(self._levels[IDLE][None, self._slow], nodes, axis=0)

    def _counter_setup(self) -> None:
        nodes, units = self._shape
        known = {**GPU_RATES, **NIC_RATES}
        table = [known.get(m.name, Rate()) for m in self._counters]
        self._rates = (
            np.array(
                [_with_stall(m.name, r.levels) for m, r in zip(self._counters, table, strict=True)],
                dtype=np.float64,
            )
            .reshape(-1, 5)
            .T
        )
        self._rate_weight = np.array([r.weight for r in table])
        self._rate_noise = np.array([r.noise for r in table])
        self._noisy = np.flatnonzero(self._rate_noise > 0.0)
        starts = np.array([r.start for r in table])[:, None]
        self._total = np.floor(self._noise.rng.random((nodes, len(table), units)) * starts)

    def _state_setup(self, extra_port: str) -> None:
        """What healthy state metrics say, shape (states, units)."""
        self._healthy = np.zeros((len(self._states), self._shape[1]))
        for row, metric in enumerate(self._states):
            self._healthy[row] = HEALTHY_STATES.get(metric.name, 0.0)
            if extra_port == "aux":
                self._healthy[row, -1] = AUX_STATES.get(metric.name, 0.0)

    def _read_gauges(self, out: FloatArray, moment: Moment) -> None:
        levels = self._levels[moment.state]
        idle = self._levels[IDLE]
        levels -= (levels - idle) * self._weight * (1.0 - _load(moment))[:, None]
        # Metal warms and cools slowly: a checkpoint of ten seconds hardly shows.
        passed = np.minimum(1.0, (moment.at_s - moment.before_s) / _INERTIA_S)[:, None]
        self._warmth += (levels[:, self._slow] - self._warmth) * passed
        levels[:, self._slow] = self._warmth
        # Slow swings (room temperature, clocks of the whole hall) that all nodes share.
        self._swing *= _SWING_KEEP
        self._swing += 0.31 * self._noise.normal(len(self._swing))
        levels += self._swing * self._swing_sd * (moment.state != IDLE)[:, None]
        np.multiply(self._noise.normal(*out.shape), self._noise_sd, out=out)
        out += self._offset
        out += levels[:, :, None]

    def _read_rates(self, moment: Moment) -> FloatArray:
        nodes, units = self._shape
        levels = self._rates[moment.state]
        idle = self._rates[IDLE]
        levels -= (levels - idle) * self._rate_weight * (1.0 - _load(moment))[:, None]
        rates = np.repeat(levels[:, :, None], units, axis=2)
        noise = self._noise.normal(nodes, len(self._noisy), units)
        rates[:, self._noisy] *= 1.0 + noise * self._rate_noise[self._noisy][:, None]
        return np.maximum(rates, 0.0, out=rates)

    def _read_states(self, block: FloatArray, moment: Moment) -> None:
        block[:, len(self.metrics) - len(self._states) :] = self._healthy
        row = self._row.get("gpu_throttle_reasons_mask")
        if row is not None:
            capped = self._noise.rng.random(self._shape) < 0.1
            block[:, row] = np.where(capped & (moment.state < HANG)[:, None], POWER_CAP_MASK, 0.0)

    def _blips(self, moment: Moment) -> None:
        """Rare small counts of the counters that should be zero, below what matters."""
        nodes, units = self._shape
        for column, metric in enumerate(self._counters):
            if metric.class_ != "abnormal":
                continue
            interval_s = float(np.min(moment.at_s - moment.before_s))
            most = int(0.4 * min(metric.effect_min, 1e5) * interval_s)
            if most < 1:
                continue
            for flat in self._noise.places(nodes * units, BLIP_SHARE).tolist():
                count = float(self._noise.rng.integers(1, most + 1))
                self._total[flat // units, column, flat % units] += count

    def _finish(self, gauges: FloatArray) -> None:
        """Clip to the physical range and round to the printed digits, in place."""
        np.clip(gauges, self._low, self._high, out=gauges)
        gauges *= self._scale
        np.rint(gauges, out=gauges)
        gauges /= self._scale

    def _strike(
        self,
        touch: Touch,
        fault: Fault,
        place: int,
        share: float,
        block: FloatArray,
        rates: FloatArray,
        moment: Moment,
    ) -> None:
        """Write one change over one node's readings."""
        if touch.busy and moment.state[place] > PAUSE:
            return  # nothing is sent or computed, so nothing goes wrong
        units = self._units(touch, fault)
        row, amount = self._row[touch.metric], touch.sized(fault.size)
        counter = row - len(self._gauges)
        if touch.op in ("rate", "steady"):
            noise = self._noise.uniform(0.5, 1.5, len(units)) if touch.op == "rate" else 1.0
            rates[place, counter, units] = amount * share * noise
        elif touch.op == "scale":
            rates[place, counter, units] *= 1.0 + (amount - 1.0) * share
        elif touch.op == "count":
            self._total[place, counter, units] += amount * moment.begun(fault, place)
        elif moment.holds(fault, place):
            held_s = float(moment.at_s[place]) - fault.onset_s
            ramp = min(1.0, held_s / touch.ramp_s) if touch.ramp_s > 0.0 else 1.0
            if touch.op == "add":
                block[place, row, units] += amount * ramp
            elif touch.op == "times":
                block[place, row, units] *= 1.0 + (amount - 1.0) * ramp
            else:
                block[place, row, units] = amount

    def _units(self, touch: Touch, fault: Fault) -> list[int]:
        """The struck GPUs or ports."""
        raise NotImplementedError

    def _move(self, fault: Fault, place: int, share: float, rates: FloatArray) -> None:
        """Traffic that another port takes over."""

    def _rate_row(self, name: str) -> int:
        return self._row[name] - len(self._gauges)


class Gpus(Devices):
    """The GPUs of all nodes."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        super().__init__(cluster, "gpu", cluster.gpus, faults, purpose=1)

    def _units(self, touch: Touch, fault: Fault) -> list[int]:
        return list(range(self._shape[1])) if touch.on == "all" else [fault.gpu]


class Ports(Devices):
    """The NIC ports of all nodes."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        super().__init__(cluster, "nic", len(cluster.ports), faults, purpose=2)

    def _units(self, touch: Touch, fault: Fault) -> list[int]:
        if touch.on == "all":
            return list(range(self._shape[1]))
        return [fault.partner_port if touch.on == "partner" else fault.port]

    def _move(self, fault: Fault, place: int, share: float, rates: FloatArray) -> None:
        for name in ("nic_receive_bytes_total", "nic_transmit_bytes_total"):
            row = self._rate_row(name)
            moved = fault.what.move * share * rates[place, row, fault.port]
            rates[place, row, fault.port] -= moved
            rates[place, row, fault.partner_port] += moved


def _with_stall(name: str, levels: Sequence[float]) -> tuple[float, ...]:
    """The four levels, and the one of a job that stands still without computing anything."""
    return (*levels, levels[HANG] if name in _STALLED else levels[IDLE])


def _load(moment: Moment) -> FloatArray:
    """The load where the job runs; what stands still has the level of standing still."""
    return np.where(moment.state < HANG, moment.load, 1.0)
