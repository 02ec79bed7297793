"""The records of `nodewarden.telemetry`: everything the fold reads, as it stands on the wire.

JSON, one object a record, tagged by `kind`. Unknown fields are ignored, missing ones reject the
record. `at` is event time on the node's clock, Unix seconds; a stream is (node, source, started_at)
and its `seq` is contiguous. A measurement that is missing is null, never 0.
"""

from __future__ import annotations

from typing import Literal, final

import msgspec

from telemetry.attempts import Attempt
from telemetry.settings import EngineSettings

SCHEMA_VERSION = 1

StepKind = Literal["train", "evaluation", "checkpoint", "warmup", "first", "unknown"]
EventType = Literal[
    "xid", "sxid", "gpu_lost", "gpu", "nic", "storage", "pcie", "machine_check", "thermal", "os",
    "oom", "process",
]  # fmt: skip
Severity = Literal["critical", "warning", "info"]
SWITCH = "switch"
"""Source of what a switch says of a node's port: the node itself has said nothing."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every record carries.

    node        "" where the record speaks for no single node
    source      which reader on that node: "gpu", "nic", "host", "kernel", "training", ...
    started_at  when the agent that wrote the stream started, Unix seconds
    seq         position in the stream (node, source, started_at), contiguous from any start
    sent_at     node's clock when first handed to the producer; None in captures
    spooled     waited on the node's disk: merely delayed, says nothing about its clock
    replayed    original arrival, Unix seconds; only in history shards
    """

    at: float
    node: str
    source: str
    started_at: float
    seq: int
    v: int = SCHEMA_VERSION
    sent_at: float | None = None
    boot_id: str = ""
    spooled: bool = False
    replayed: float | None = None


class Settings(Header, frozen=True, kw_only=True, tag_field="kind", tag="settings"):
    """What the engine runs with from here on; the first record of a shard."""

    digest: str
    engine_version: str
    settings: EngineSettings


class Begin(Header, frozen=True, kw_only=True, tag_field="kind", tag="begin"):
    """First record of a piece of history: drop all state."""

    name: str = ""


class End(Header, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """Last record of a piece of history: close what is open. Its arrival lies past all timers."""


class Beat(Header, frozen=True, kw_only=True, tag_field="kind", tag="beat"):
    """Time moves when nobody speaks."""


class Frame(Header, frozen=True, kw_only=True, tag_field="kind", tag="frame"):
    """One scrape of one source of one node, columnar.

    entities  device class ("gpu", "nic", "disk", "node", ...) -> entity names, each once
    metrics   catalogue name -> one value or null per entity of the metric's device class
    """

    entities: dict[str, list[str]]
    metrics: dict[str, list[float | None]]


class Event(Header, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Something that happened once: a kernel line, a process that ended, a failure in a log.

    type        the closed list of `parse kernel`; failures in training logs are "process"
    code        Xid or SXid number
    entity      "pci:0000:c3:00", "gpu:<uuid>", "nic:mlx5_3/1", "rank:17" or ""
    class_      the parser's class: the Xid catalogue's class, or "user_code", "cuda", "nccl", "oom"
    text        the line as it was written, at most 4,096 characters
    kmsg_seq    with boot_id the event's identity across re-reads
    details     what else the line says: {"unit": "NETIR_LINK_EVT", "action": "reset_gpu"}
    """

    type: EventType
    text: str
    severity: Severity
    class_: str = msgspec.field(name="class", default="")
    code: int | None = None
    entity: str = ""
    pid: int | None = None
    process: str | None = None
    job: str = ""
    kmsg_seq: int | None = None
    details: dict[str, str | int] = {}


class Steps(Header, frozen=True, kw_only=True, tag_field="kind", tag="steps"):
    """Training steps that ended: all ranks of a node, or the job as a whole (node "", ranks []).

    Columns are parallel to `ranks`, or of length 1 where the log speaks for the whole job.
    nonfinite  per row, the quantities that were NaN or infinite ("loss", "grad_norm"); they are
               null in their own column, JSON has no NaN
    """

    job: str
    step_kind: StepKind = "train"
    ranks: list[int] = []
    step: list[int] = []
    step_time_s: list[float | None] = []
    compute_time_s: list[float | None] = []
    loss: list[float | None] = []
    grad_norm: list[float | None] = []
    tokens: list[float | None] = []
    mfu_ratio: list[float | None] = []
    throughput: list[float | None] = []
    nonfinite: list[list[str]] = []


class Gpu(msgspec.Struct, frozen=True):
    """One GPU under its three names; pci as "0000:c3:00"."""

    index: int
    uuid: str
    pci: str = ""


class Port(msgspec.Struct, frozen=True):
    """One NIC port, "mlx5_3/1", and whether it is meant to be up (None: nobody said).

    guid, pci   what it keeps when a boot gives it another name; "" where unknown
    """

    name: str
    should_be_up: bool | None = None
    fabric: bool = True
    guid: str = ""
    pci: str = ""


class Hardware(Header, frozen=True, kw_only=True, tag_field="kind", tag="hardware"):
    """What a node is made of, said at start, on change and every 10 min.

    up_s  how long the node was up when it was said, seconds
    """

    serial: str = ""
    aliases: list[str] = []
    gpus: list[Gpu] = []
    ports: list[Port] = []
    driver: str = ""
    firmware: str = ""
    up_s: float | None = None


class JobNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node of one job: held during [since, until), Unix seconds; None is open."""

    name: str
    since: float | None = None
    until: float | None = None
    ranks: list[int] = []
    stage: int | None = None


class Parallel(msgspec.Struct, frozen=True):
    """Parallel sizes; 1 where the job does not use one."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job as the scheduler lists it."""

    id: str
    name: str = ""
    attempt: int = 0
    start: float | None = None
    end: float | None = None
    gpus_per_node: int | None = None
    parallel: Parallel | None = None
    nodes: list[JobNode] = []
    code: str = ""  # the version of its code, as its owner names it


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as the scheduler and the topology file list it."""

    name: str
    state: str = ""  # the scheduler's word, "" where unknown
    owner: str = ""  # who drained it
    rack: str = ""
    leaf: str = ""
    pod: str = ""
    protected: bool = False
    boot_at: float | None = None  # its last boot, as the scheduler says


class Maintenance(msgspec.Struct, frozen=True):
    """A scheduler's reservation for maintenance: [since, until), Unix seconds, of these nodes."""

    name: str
    since: float
    until: float
    nodes: list[str]


class Allocation(Header, frozen=True, kw_only=True, tag_field="kind", tag="allocation"):
    """Jobs and nodes. With `listing` a part of a full listing, else a change to what is known.

    A full listing is `count` records under one `listing` id, the last with `last`; what a complete
    listing lacks is gone, an incomplete one changes nothing.

    maintenance  of a source's whole listing; not in the log: no finding depends on it
    """

    jobs: list[Job] = []
    nodes: list[NodeInfo] = []
    listing: str = ""
    last: bool = False
    count: int = 0
    maintenance: list[Maintenance] = []


class Control(Header, frozen=True, kw_only=True, tag_field="kind", tag="control"):
    """What a human did that the engine must know.

    target   incident id or node name; of "attempted" the incident that it was made for
    attempt  of "attempted": the step of the ladder that was made, and what became of it
    """

    action: Literal["false_alarm", "cleared", "released", "attempted"]
    target: str
    by: str = ""
    attempt: Attempt | None = None


Record = (
    Settings | Begin | End | Beat | Frame | Event | Steps | Hardware | Allocation | Control
)  # fmt: skip

# At equal times records are read in this order.
_IN_ORDER: tuple[type[Header], ...] = (
    Begin, Settings, Hardware, Allocation, Control, Event, Steps, Frame, Beat, End,
)  # fmt: skip
KIND_ORDER: dict[type[Header], int] = {kind: rank for rank, kind in enumerate(_IN_ORDER)}


@final
class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="rejected"):
    """Input that could not be used: counted and kept, never an exception.

    text    its first 64 kB; `length` and `sha256` are of the whole
    place   where it stood: "kernel/n1.log:17", "nodewarden.telemetry/0@123"
    """

    reason: str
    text: str
    place: str = ""
    length: int = 0
    sha256: str = ""
    at: float | None = None


class Arrived(msgspec.Struct, frozen=True):
    """A record at its place in the log.

    offset   position in the shard's log, contiguous
    arrival  the log's clock, Unix seconds: the broker's append time; in captures the event time;
             of replayed records the original arrival
    """

    offset: int
    arrival: float
    record: Record | Rejected
