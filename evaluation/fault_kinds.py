"""What a kind of fault is: what it does to devices, job, ranks, telemetry; what is true of it.

The rows stand in `kinds_hardware`, `kinds_job` and `look_alikes`; adding a fault is adding a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evaluation.cluster import ExtraPort
from telemetry.findings import Cause, Kind
from telemetry.records import EventType, Severity

Expect = Literal["isolate", "page", "none"]
Scope = Literal["node", "leaf", "job"]
JobEnd = Literal["goes on", "hangs", "exits", "restarts"]
Phase = Literal["", "init", "first", "evaluation", "checkpoint"]
Ranks = Literal["", "unit", "node", "all"]
Comeback = Literal["", "agent", "boot"]
SizeName = Literal["obvious", "typical", "barely"]

SIZES: tuple[SizeName, ...] = ("obvious", "typical", "barely")
FIXED = (1.0, 1.0, 1.0)  # a thing that is there or not: all sizes are one


@dataclass(frozen=True, slots=True)
class Touch:
    """How one metric changes while the fault holds.

    op      add: gauge + amount; times: gauge * amount; set: state = amount;
            rate: counter rises by amount a second, give or take half; steady: the same without
            the noise; scale: the counter's own rate * amount; count: so many counts at each onset
    on      the struck GPU or port, all of the node, or the other uplink of the bond
    busy    only while the job computes
    ramp_s  seconds until the whole change is there
    fixed   the same at every size
    """

    metric: str
    op: Literal["add", "times", "set", "rate", "steady", "scale", "count"]
    amount: float
    on: Literal["unit", "all", "partner"] = "unit"
    busy: bool = False
    ramp_s: float = 0.0
    fixed: bool = False

    def sized(self, size: float) -> float:
        """The amount at a size; a factor moves away from 1, and never below a twentieth."""
        if self.fixed or self.op in ("set", "count"):
            return self.amount
        if self.op in ("times", "scale"):
            return max(0.05, 1.0 + (self.amount - 1.0) * size)
        return self.amount * size


@dataclass(frozen=True, slots=True)
class Line:
    """A kernel line; `text` may name {pci} (GPU), {nic} (mlx5_3), {nic_pci}, {count}.

    after_s   seconds after each onset
    every_s   again so often, 0 for once; `times` lines in all, None until the end
    device    what the parser names as the entity: the GPU's address, the port, the disk, nothing
    """

    text: str
    type: EventType
    severity: Severity = "warning"
    class_: str = ""
    code: int | None = None
    after_s: float = 0.0
    every_s: float = 0.0
    times: int | None = 1
    device: Literal["gpu", "nic", "disk", ""] = ""
    pid: int | None = None
    process: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One row. `kind`, `cause` and `expect` are the truth.

    told_kinds, told_causes   what may also be said of it with right: telemetry often cannot know
    scope       whom the truth names: the node, the nodes of its leaf, or nobody (the job)
    levels      the size as a multiple at obvious, typical and barely visible
    failure     class and last line of the exception that ends the job
    slow, load  step time while it lasts, and how hard the GPUs work beside that, as multiples;
                slow_ramp_s until it is all there
    job, phase  what becomes of the job, and in which phase: at once, or when it gets there
    down_s      until a job that restarts runs again
    first_s, pause_s   length of the first step, of a checkpoint or evaluation, None as usual
    ranks       whose compute time grows by the job's slowdown
    uneven      sd of each rank's compute time from step to step, as a share
    pauses      share of steps that are longer, and by which multiple
    loss, norm, drift  multiples of loss and gradient norm, growth of the loss a step;
                `bad_steps` steps long, 0 until the end; nonfinite: they become NaN
    warms_up    after a restart loss and norm come down from high values
    work        tokens of a step, as a multiple
    mute        the node's telemetry stops, `mute_source` only that of this source
    share       share of all nodes that are struck, 0: those of the scope
    pulses      (seconds after the onset, length in s) of each time it holds, none for all along
    outage_s    the telemetry is away so long; then `comeback` as a new agent or a new boot
    renames     the ports have other names after the boot
    gone        this metric vanishes from all frames
    frozen      the struck GPUs' values repeat exactly
    lost        the struck GPU's values become null
    extra_port  a ninth port: "aux" is meant to be down, "management" is none of the fabric
    move        share of the port's traffic that its bond partner takes over
    run_s       how long a run must go on after the onset to be judged
    """

    name: str
    kind: Kind
    cause: Cause
    expect: Expect
    text: str
    told_kinds: tuple[Kind, ...] = ()
    told_causes: tuple[Cause, ...] = ()
    scope: Scope = "node"
    levels: tuple[float, float, float] = (2.0, 1.0, 0.25)
    touches: tuple[Touch, ...] = ()
    lines: tuple[Line, ...] = ()
    failure: tuple[str, str] = ("", "")
    slow: float = 1.0
    load: float = 1.0
    slow_ramp_s: float = 0.0
    job: JobEnd = "goes on"
    phase: Phase = ""
    down_s: float = 90.0
    first_s: float | None = None
    pause_s: float | None = None
    ranks: Ranks = ""
    uneven: float = 0.0
    pauses: tuple[float, float] = (0.0, 1.0)
    loss: float = 1.0
    norm: float = 1.0
    drift: float = 0.0
    bad_steps: int = 0
    nonfinite: bool = False
    warms_up: bool = False
    work: float = 1.0
    mute: bool = False
    mute_source: str = ""
    share: float = 0.0
    pulses: tuple[tuple[float, float], ...] = ()
    outage_s: float = 0.0
    comeback: Comeback = ""
    renames: bool = False
    gone: str = ""
    frozen: bool = False
    lost: bool = False
    extra_port: ExtraPort = ""
    move: float = 0.0
    run_s: float = 1_200.0

    @property
    def sizes(self) -> tuple[SizeName, ...]:
        """The sizes that differ."""
        return ("typical",) if self.levels == FIXED else SIZES

    @property
    def kinds(self) -> frozenset[str]:
        """Incident kinds that are right."""
        return frozenset({self.kind, *self.told_kinds})

    @property
    def causes(self) -> frozenset[str]:
        """Causes that are right."""
        return frozenset({self.cause, *self.told_causes})
