"""What a training log can say, before it is a record or an object of `parse training`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from telemetry.records import Rejected, StepKind

Role = Literal["cause", "echo", "warning"]
Value = float | int | str | bool | None


class Step(Struct, gc=False):
    """One step line.

    form         row of `forms.FORMS` that read it
    step         None where the line names none
    step_time_s  a mean over `steps` steps where the log prints every so many
    reckoned     the time is not printed with the step but worked out
    repeat       another rank has said the same step already
    nonfinite    which of "loss", "grad_norm" was NaN or infinite; it is None in its own field
    more         what else the line holds, units in the names
    """

    form: str
    step: int | None = None
    at_s: float | None = None
    step_time_s: float | None = None
    steps: int | None = None
    loss: float | None = None
    grad_norm: float | None = None
    throughput: float | None = None
    throughput_unit: str = ""
    kind: StepKind = "train"
    nonfinite: tuple[str, ...] = ()
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    reckoned: bool = False
    repeat: bool = False
    more: dict[str, float] = {}


@dataclass(slots=True)
class Failure:
    """Last words of a process, or of what watches it.

    class_  "user_code", "cuda", "nccl", "oom", "network", "storage", "numerics", "npu",
            "killed", "terminated", "abort", "crash", "cancelled" or "unknown"
    detail  finer: "ecc", "launch_failure", "collective_timeout", ...; "" where nothing is known
    role    the first of an incident is its cause; what others shout afterwards is an echo;
            a warning may precede a failure and accuses nobody by itself
    more    fields of the form: exitcode, signal, seq, op, nic, peer, ...
    """

    class_: str
    text: str
    detail: str = ""
    at_s: float | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    role: Role = "cause"
    yearless_s: float | None = None
    more: dict[str, Value] = field(default_factory=dict)


@dataclass(slots=True)
class Note:
    """A checkpoint that was saved, an evaluation that ended, a step skipped for an overflow.

    apart  its time is not in any step's printed time
    """

    type: Literal["checkpoint", "evaluation", "overflow", "check"]
    at_s: float | None = None
    step: int | None = None
    rank: int | None = None
    apart: bool = False
    more: dict[str, Value] = field(default_factory=dict)


Said = Step | Failure | Note | Rejected
