"""Faults that the simulator injects, at their place and time.

A fault is written `KIND@NODE+OFFSET[*SIZE]`: `xid79@n003+600`, `leaf@leaf-01+10m*obvious`,
`ecn@n003+600*0.5` (half of the typical size), or `ecn@n003+600:size=barely`. Look-alikes are faults
that must not get a node isolated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation import kinds_hardware, kinds_job, look_alikes
from evaluation.cluster import Cluster
from evaluation.fault_kinds import SIZES, Expect, FaultKind, JobEnd, Scope, SizeName
from evaluation.noise import Noise
from telemetry.errors import SettingsError

__all__ = [
    "FAULTS", "KINDS", "LOOK_ALIKES", "SIZES", "Expect", "Fault", "FaultKind", "FaultSpec",
    "JobEnd", "Scope", "SizeName", "nearest", "parse_fault", "place_faults",
]  # fmt: skip

OFFSET_MAX_S = 1e7
SIZE_MIN, SIZE_MAX = 0.01, 100.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(
    r"(?P<kind>[^@]*)@(?P<target>[A-Za-z0-9_.-]+)\+(?P<offset>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>[smh]?)"
    r"(?:(?:\*|:size=)(?P<size>[a-z]{1,20}|[0-9]{1,3}(?:\.[0-9]{1,6})?))?",
    re.ASCII,
)
_FAULTS_PURPOSE = 5
_SHARES_PURPOSE = 6

FAULTS: dict[str, FaultKind] = {
    row.name: row
    for row in (
        *kinds_hardware.GPU, *kinds_hardware.NETWORK, *kinds_hardware.HOST,
        *kinds_job.HANGS, *kinds_job.LOSSES, *kinds_job.PACE,
    )
}  # fmt: skip
LOOK_ALIKES: dict[str, FaultKind] = {
    row.name: row for row in (*look_alikes.DEVICES, *look_alikes.JOB, *look_alikes.TELEMETRY)
}
KINDS: dict[str, FaultKind] = {**FAULTS, **LOOK_ALIKES}


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault as asked for: `target` is a node name, a node's index or a leaf.

    offset_s    seconds after the start
    duration_s  None: until the end
    size        a name, or a multiple of the typical size
    """

    kind: str
    target: str
    offset_s: float
    duration_s: float | None = None
    size: SizeName | float = "typical"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at its place and time; `places` are node positions, times Unix seconds.

    size   its multiple, `size_name` how it was asked for
    """

    what: FaultKind
    place: int
    places: tuple[int, ...]
    gpu: int
    port: int
    onset_s: float
    until_s: float | None
    size: float = 1.0
    size_name: SizeName | float = "typical"

    def active(self, at_s: float) -> bool:
        """Whether it holds at `at_s`."""
        return self.onset_s <= at_s < self.end_s

    def spans(self) -> Iterator[tuple[float, float]]:
        """(begin, end) of each time it touches the devices."""
        if not self.what.pulses:
            yield self.onset_s, self.end_s
        for after_s, length_s in self.what.pulses:
            begin_s = self.onset_s + after_s
            yield begin_s, min(begin_s + length_s, self.end_s)

    def slow(self, at_s: float) -> float:
        """Step time as a multiple, 1 outside of the fault."""
        if not self.active(at_s):
            return 1.0
        extra = (self.what.slow * self.what.work - 1.0) * self.size
        if self.what.slow_ramp_s > 0.0:
            extra *= min(1.0, (at_s - self.onset_s) / self.what.slow_ramp_s)
        return 1.0 + extra

    def load(self, at_s: float) -> float:
        """How hard the GPUs work beside that, as a multiple."""
        if not self.active(at_s):
            return 1.0
        return max(0.05, 1.0 - (1.0 - self.what.load) * self.size)

    def mutes(self, place: int, at_s: float, source: str) -> bool:
        """Whether that source of a node's telemetry is away."""
        what = self.what
        if place not in self.places or not self.active(at_s):
            return False
        if what.outage_s > 0.0:
            return at_s < self.onset_s + what.outage_s
        return what.mute or (what.mute_source != "" and what.mute_source == source)

    @property
    def is_quiet(self) -> bool:
        """Whether it takes telemetry away at all."""
        return self.what.mute or self.what.mute_source != "" or self.what.outage_s > 0.0

    @property
    def back_s(self) -> float:
        """When a node whose telemetry was away speaks again."""
        return self.onset_s + self.what.outage_s

    @property
    def end_s(self) -> float:
        """When it is over; infinity for never."""
        return float("inf") if self.until_s is None else self.until_s

    @property
    def partner_port(self) -> int:
        """The other uplink of the same bond; a port that has none is its own."""
        return self.port if self.what.extra_port else self.port ^ 1

    def truth(self, cluster: Cluster) -> dict[str, Any]:
        """The fault as `truth.json` states it."""
        nodes = [] if self.what.scope == "job" else [cluster.names[p] for p in self.places]
        return {
            "kind": self.what.kind,
            "nodes": nodes,
            "onset": self.onset_s,
            "until": self.until_s,
            "cause": self.what.cause,
            "expect": self.what.expect,
            "fault": self.what.name,
            "size": self.size_name,
        }


def parse_fault(text: str) -> FaultSpec:
    """`KIND@NODE+OFFSET[*SIZE]`, OFFSET in seconds or with a unit s, m, h. Raises SettingsError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise SettingsError(
            f"--fault {text!r}: write KIND@NODE+OFFSET[*SIZE], such as xid79@n003+600,"
            " leaf@leaf-01+10m or ecn@n003+10m*obvious"
        )
    kind = match["kind"]
    if kind not in KINDS:
        raise SettingsError(
            f"--fault {text!r}: unknown kind {kind!r}{nearest(kind, list(KINDS))};"
            f" kinds are {', '.join(KINDS)}"
        )
    offset_s = float(match["offset"]) * _UNITS[match["unit"]]
    if offset_s > OFFSET_MAX_S:
        raise SettingsError(f"--fault {text!r}: the offset must be at most {OFFSET_MAX_S:.0f} s")
    return FaultSpec(kind, match["target"], offset_s, size=_size(text, match["size"]))


def _size(text: str, size: str | None) -> SizeName | float:
    if size is None:
        return "typical"
    for name in SIZES:
        if size == name:
            return name
    if size[0].isdigit() and SIZE_MIN <= float(size) <= SIZE_MAX:
        return float(size)
    raise SettingsError(
        f"--fault {text!r}: the size is {', '.join(SIZES)} or a multiple of the typical size"
        f" from {SIZE_MIN:g} to {SIZE_MAX:g}"
    )


def place_faults(
    specs: Sequence[FaultSpec], cluster: Cluster, start_s: float, end_s: float
) -> tuple[Fault, ...]:
    """The faults in order of onset; SettingsError where one has no place or no time."""
    noise = Noise(cluster.seed, _FAULTS_PURPOSE)
    placed = []
    for spec in specs:
        if spec.kind not in KINDS:
            raise SettingsError(f"unknown fault {spec.kind!r}{nearest(spec.kind, list(KINDS))}")
        if not 0.0 <= spec.offset_s < end_s - start_s:
            raise SettingsError(
                f"fault {spec.kind}@{spec.target}+{spec.offset_s:g}: the offset lies outside the"
                f" simulated {end_s - start_s:g} s; give more --minutes"
            )
        what, place = KINDS[spec.kind], _place(spec, cluster)
        onset_s = start_s + spec.offset_s
        gpu, port = int(noise.rng.integers(cluster.gpus)), int(noise.rng.integers(8))
        placed.append(
            Fault(
                what=what,
                place=place,
                places=_places(what, place, cluster),
                gpu=gpu,
                port=cluster.extra_port_place if what.extra_port else port,
                onset_s=onset_s,
                until_s=None if spec.duration_s is None else onset_s + spec.duration_s,
                size=_multiple(what, spec.size),
                size_name=spec.size,
            )
        )
    return tuple(sorted(placed, key=lambda fault: (fault.onset_s, fault.what.name, fault.place)))


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint such as ", did you mean 'ecn'?", or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""


def _multiple(what: FaultKind, size: SizeName | float) -> float:
    return what.levels[SIZES.index(size)] if isinstance(size, str) else size


def _place(spec: FaultSpec, cluster: Cluster) -> int:
    """Position of the named node, or of the first node of the named leaf."""
    target = spec.target
    if target in cluster.index:
        return cluster.index[target]
    if re.fullmatch(r"[0-9]{1,6}", target, re.ASCII) and int(target) < cluster.nodes:
        return int(target)
    if target in cluster.leaves:
        if KINDS[spec.kind].scope == "node":
            raise SettingsError(f"fault {spec.kind} strikes one node, not {target}: name a node")
        return cluster.leaves.index(target)
    hint = nearest(target, [*cluster.names, *sorted(set(cluster.leaves))])
    raise SettingsError(
        f"fault {spec.kind}@{target}: no such node or leaf{hint};"
        f" nodes are {cluster.names[0]} to {cluster.names[-1]}"
    )


def _places(what: FaultKind, place: int, cluster: Cluster) -> tuple[int, ...]:
    if what.scope == "leaf":
        return tuple(p for p, leaf in enumerate(cluster.leaves) if leaf == cluster.leaves[place])
    if what.name == "stage-imbalance":
        return tuple(p for p, stage in enumerate(cluster.stages) if stage == cluster.stages[place])
    if what.share > 0.0:
        count = max(1, round(what.share * cluster.nodes))
        chosen = Noise(cluster.seed, _SHARES_PURPOSE).rng.permutation(cluster.nodes)[:count]
        return tuple(sorted(chosen.tolist()))
    if what.scope == "job":
        return tuple(range(cluster.nodes))
    return (place,)
