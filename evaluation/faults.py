"""Faults that the simulator injects, and what is true of each.

A fault is written `KIND@NODE+OFFSET`: `xid79@n003+600`, `leaf@leaf-01+10m`. Look-alikes are faults
that must not get a node isolated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evaluation.cluster import PORTS, Cluster
from evaluation.noise import Noise
from telemetry.errors import SettingsError
from telemetry.findings import Cause, Kind

Expect = Literal["isolate", "page", "none"]
Scope = Literal["node", "leaf", "job"]
JobEnd = Literal["goes on", "hangs", "exits", "restarts"]

OFFSET_MAX_S = 1e7
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(
    r"(?P<kind>[^@]*)@(?P<target>[A-Za-z0-9_.-]+)\+(?P<offset>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>[smh]?)",
    re.ASCII,
)
_FAULTS_PURPOSE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """What a kind of fault does to the job, and what is true of it.

    slow    step time while it lasts, as a multiple
    load    how hard the GPUs work beside that, as a multiple
    mute    the node's telemetry stops
    scope   whom the truth names: the node, the nodes of its leaf, or nobody (the job)
    """

    name: str
    kind: Kind
    cause: Cause
    expect: Expect
    text: str
    slow: float = 1.0
    load: float = 1.0
    job: JobEnd = "goes on"
    mute: bool = False
    scope: Scope = "node"


_ROWS = (
    FaultKind(name="xid79", kind="gpu_lost", cause="hardware", expect="isolate", job="hangs",
              text="a GPU falls off the bus, the job hangs"),
    FaultKind(name="ecn", kind="nic_congested", cause="network", expect="isolate", slow=1.26,
              text="one of two uplinks loses packets silently, the other is congested"),
    FaultKind(name="ecn-only", kind="nic_congested", cause="network", expect="none",
              text="the same surge without a slow job"),
    FaultKind(name="thermal", kind="gpu_thermal", cause="hardware", expect="isolate", slow=1.2,
              text="a GPU is hot and slows down, and the job with it"),
    FaultKind(name="hot", kind="gpu_thermal", cause="unknown", expect="none",
              text="a GPU is hot, does not throttle, and the job is as fast as ever"),
    FaultKind(name="nan", kind="loss_anomaly", cause="unknown", expect="page", scope="job",
              text="the loss becomes NaN"),
    FaultKind(name="silent", kind="node_silent", cause="hardware", expect="isolate", job="hangs",
              mute=True, text="a whole node stops, and the job with it"),
    FaultKind(name="agent-dead", kind="telemetry_gap", cause="telemetry", expect="none", mute=True,
              text="a node's telemetry stops, the job goes on"),
    FaultKind(name="leaf", kind="fabric", cause="network", expect="page", slow=1.3, scope="leaf",
              text="all nodes behind one leaf switch are congested"),
    FaultKind(name="usercode", kind="user_error", cause="user_code", expect="page", job="exits",
              scope="job", text="the job dies of a TypeError"),
    FaultKind(name="slow-code", kind="job_slow", cause="user_code", expect="none", slow=1.2,
              scope="job", text="the job becomes slower through its own code"),
    FaultKind(name="stage-imbalance", kind="job_slow", cause="user_code", expect="none", slow=1.2,
              scope="job", text="one pipeline stage has more to do than the others"),
    FaultKind(name="phase-change", kind="fleet_shift", cause="user_code", expect="none", slow=1.15,
              load=0.85, scope="job", text="the job enters another phase, everything shifts"),
    FaultKind(name="xid13", kind="user_error", cause="user_code", expect="none", job="restarts",
              text="an application error on one GPU, the job restarts itself"),
)  # fmt: skip
KINDS: dict[str, FaultKind] = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault as asked for: `target` is a node name, a node's index or a leaf.

    offset_s    seconds after the start
    duration_s  None: until the end
    """

    kind: str
    target: str
    offset_s: float
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at its place and time; `places` are node positions, times Unix seconds."""

    what: FaultKind
    place: int
    places: tuple[int, ...]
    gpu: int
    port: int
    onset_s: float
    until_s: float | None

    def active(self, at_s: float) -> bool:
        """Whether it holds at `at_s`."""
        return self.onset_s <= at_s < self.end_s

    @property
    def end_s(self) -> float:
        """When it is over; infinity for never."""
        return float("inf") if self.until_s is None else self.until_s

    @property
    def partner_port(self) -> int:
        """The other uplink of the same bond."""
        return self.port ^ 1

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
        }


def parse_fault(text: str) -> FaultSpec:
    """`KIND@NODE+OFFSET`, OFFSET in seconds or with a unit s, m, h. Raises SettingsError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise SettingsError(
            f"--fault {text!r}: write KIND@NODE+OFFSET, such as xid79@n003+600 or leaf@leaf-01+10m"
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
    return FaultSpec(kind, match["target"], offset_s)


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
        placed.append(
            Fault(
                what=what,
                place=place,
                places=_places(what, place, cluster),
                gpu=int(noise.rng.integers(cluster.gpus)),
                port=int(noise.rng.integers(len(PORTS))),
                onset_s=onset_s,
                until_s=None if spec.duration_s is None else onset_s + spec.duration_s,
            )
        )
    return tuple(sorted(placed, key=lambda fault: (fault.onset_s, fault.what.name, fault.place)))


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint such as ", did you mean 'ecn'?", or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""


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
    if what.scope == "job":
        return tuple(range(cluster.nodes))
    return (place,)
