"""What the engine says: findings, incidents, verdicts.

One id never has two contents at one revision. Times are Unix seconds; printed numbers have 6
significant digits (`six_digits`), so that they are the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from telemetry.attempts import Attempt, FinalCause, Step
from telemetry.records import Severity

Cause = Literal[
    "hardware", "network", "site_software", "user_code", "common_mode", "telemetry", "unknown"
]
Kind = Literal[
    "gpu_fault", "gpu_memory", "gpu_lost", "nvlink_fault", "gpu_slow", "gpu_thermal", "gpu_power",
    "pcie_degraded", "nic_fault", "nic_flap", "nic_congested", "fabric", "storage", "host",
    "node_silent", "job_hang", "job_slow", "loss_anomaly", "user_error", "fleet_shift",
    "telemetry_gap",
]  # fmt: skip
Action = Literal[
    "isolate", "isolate_and_restart", "restart", "rollback", "diagnose", "page", "none"
]
When = Literal["now", "at_checkpoint", "at_job_end"]

ACTING: frozenset[Action] = frozenset({"isolate", "isolate_and_restart", "restart", "rollback"})
ISOLATING: frozenset[Action] = frozenset({"isolate", "isolate_and_restart"})


def six_digits(value: float) -> float:
    """`value` rounded to 6 significant digits."""
    return float(f"{value:.6g}")


def stable_id(*parts: str | float) -> str:
    """16 hex digits of the SHA-256 of the parts; the same on every machine and run."""
    text = "\x1f".join(part if isinstance(part, str) else f"{part:.3f}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a detector says, in one of its revisions.

    id        hash(cluster, detector, subject, metric, onset)
    role      "fault" opens an incident by itself; "evidence" only supports one
    kind      the incident kind it speaks for
    certain   a machine fault that one observation proves: isolate at once
    node      "" where the subject is the job
    entity    "gpu:<uuid>", "pci:0000:c3:00", "nic:mlx5_3/1", "rank:17" or ""; "peer:<node>" where
              `node` tells of another node: never more than evidence, and only with others
    onset     event time at which it began
    onset_resolution_s   how far from `onset` it may really have begun, 0 where nobody said
    at        the log's `now` when this revision was said
    observed, expected, unit   the numbers behind it, null where it is about no number
    events    how many separate occurrences it stands for
    """

    id: str
    rev: int
    state: Literal["open", "update", "clear"]
    role: Literal["fault", "evidence"]
    detector: str
    kind: Kind
    cause: Cause
    severity: Severity
    node: str
    entity: str
    job: str
    metric: str
    onset: float
    at: float
    text: str
    certain: bool = False
    observed: float | None = None
    expected: float | None = None
    unit: str = ""
    score: float = 0.0
    events: int = 1
    onset_resolution_s: float = 0.0


class Suspect(msgspec.Struct, frozen=True):
    """A node under suspicion, and the part of it; score 0 to 1."""

    node: str
    entity: str
    score: float


class Evidence(msgspec.Struct, frozen=True):
    """One finding as the incident shows it."""

    detector: str
    metric: str
    observed: float | None
    expected: float | None
    unit: str
    onset: float
    text: str
    node: str = ""
    entity: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What should be done, and why; `recheck_at` asks to be asked again.

    step         which step of the ladder it asks for, None where it asks for none
    final_cause  what the step that worked proves about the cause
    """

    action: Action
    reason: str
    targets: list[str]
    when: When
    at: float
    rung: str = ""
    recheck_at: float | None = None
    step: Step | None = None
    final_cause: FinalCause | None = None


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One story, whole, each revision.

    scope     "node:<name>", "leaf:<name>", "job:<id>", "cluster"
    evidence  ordered by (onset, detector, node, metric)
    verdict   the first that acts, else the last; later ones stand in `verdicts`
    """

    id: str
    rev: int
    scope: str
    opened_at: float
    closed_at: float | None
    job: str
    cause: Cause
    kind: Kind
    severity: Severity
    confidence: float
    suspects: list[Suspect]
    evidence: list[Evidence]
    verdict: Verdict
    verdicts: list[Verdict]
    findings: list[str] = []
    certain: bool = False
    network_events: int = 0
    merged_into: str = ""


class Isolation(msgspec.Struct, frozen=True):
    """One line of the fold's own ledger: a verdict that isolated a node."""

    node: str
    at: float
    incident: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the ladder reads beside the incident; None where nobody knows.

    job_nodes       nodes of the incident's job
    job_progressing whether the job still ends steps
    job_still_s     from when on it counts as standing still, unless it ends another step
    job_failed      its own code failed: no node has to be the reason that it stands still
    replacements    free standby nodes
    ledger          isolations so far, oldest first
    blind_share     share of expected reporters that are silent
    protected       nodes that are never isolated
    unlisted        suspects that the inventory, where there is one, does not know
    attempts        steps asked for or made for the incident's job, oldest first
    gpus_per_node   of the job
    code_changed_at when the job's code changed last
    copies          node -> the nodes that hold copies of its part of the newest checkpoint; a node
                    that is not there: nobody knows. Nothing fills it: nodewarden keeps and reads no
                    checkpoints in memory, and those in shared storage go with no node
    """

    job_nodes: list[str]
    job_progressing: bool | None
    replacements: int | None
    ledger: list[Isolation]
    blind_share: float
    protected: list[str]
    unlisted: list[str] = []
    job_still_s: float | None = None
    job_failed: bool = False
    attempts: list[Attempt] = []
    gpus_per_node: int | None = None
    copies: dict[str, list[str]] | None = None
    code_changed_at: float | None = None
