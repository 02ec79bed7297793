"""What accounting says of a stretch of time: `nodewarden report`, its tables, JSON and CSV.

Durations are in seconds, times Unix seconds. None is unknown, never 0; definitions and sources
stand in docs/accounting.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from telemetry.actions import (
    DecisionState,
    OutcomeStatus,
    RecoveryState,
    RestartMode,
    UpdateState,
    Verb,
)
from telemetry.attempts import FinalCause
from telemetry.findings import Cause, Kind

Mechanism = Literal[
    "eviction_restart", "analyser_eviction", "hot_update", "rollback", "retry", "quarantine",
    "human", "restart_by_others", "by_itself",
]  # fmt: skip
Phase = Literal[
    "detect", "decide", "approval", "act", "recover", "drain", "stop", "clean", "replace", "start",
    "down", "load", "first_step", "recompute", "diagnosis_wait",
]  # fmt: skip


class Hour(msgspec.Struct, frozen=True):
    """ETTR of the hour that ends at `at`."""

    at: float
    ettr: float


class Productivity(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a job, or of all jobs together, went.

    wall_s            from the first start to the last end, within the period
    productive_s      of it, spent on steps that were the first of their number
    ettr              productive_s / wall_s; of the fleet weighted by nodes where all are known
    hour_last         the newest whole hour
    hour_lowest       the worst whole hour
    stopped_s         from the last step before an interruption to the first one's begin after it
    recomputed_s      spent on steps that had been made before
    other_s           the rest: checkpoints, evaluations, stalls, what nobody told
    diagnosis_wait_s  of stopped_s, until it was decided what to do
    interruptions     stops that a restart followed, or that an incident explains
    planned           further ones, for an update that somebody asked for; no failures
    unexplained       of them, those whose wait for a diagnosis is not known
    restarts          attempts after the first
    mtbf_s            wall_s / interruptions
    """

    wall_s: float | None = None
    productive_s: float | None = None
    ettr: float | None = None
    hour_last: Hour | None = None
    hour_lowest: Hour | None = None
    stopped_s: float | None = None
    recomputed_s: float | None = None
    other_s: float | None = None
    diagnosis_wait_s: float | None = None
    interruptions: int | None = None
    planned: int = 0
    unexplained: int = 0
    restarts: int | None = None
    mtbf_s: float | None = None


class JobAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One job that told steps; `nodes` the most that it held at once, `ended_at` None: it runs."""

    id: str
    nodes: int | None
    begun_at: float
    ended_at: float | None
    step: int
    time: Productivity


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How long one phase took, over the `count` times that are known of `of`."""

    phase: Phase
    count: int
    of: int
    mean_s: float | None
    median_s: float | None
    max_s: float | None


class IncidentAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One incident from its onset to its end; the phases as `Phase` names them.

    decision     the last state of the decision that counts, "" where nobody decided
    mechanism    None while it is open, or where nobody knows
    final_cause  what the ladder's step that worked proves
    """

    id: str
    job: str
    scope: str
    kind: Kind
    cause: Cause
    onset: float
    opened_at: float
    closed_at: float | None
    decision: str = ""
    mechanism: Mechanism | None = None
    final_cause: FinalCause | None = None
    false_alarm: bool = False
    phases: dict[Phase, float] = {}


class MechanismShare(msgspec.Struct, frozen=True):
    """How many incidents were resolved by it, and planned updates; `share` of all known."""

    mechanism: Mechanism
    count: int
    share: float


class DecisionCount(msgspec.Struct, frozen=True):
    """Decisions whose last word is this; numbers and names in `reason` are left out."""

    state: DecisionState
    reason: str
    count: int


class RailCount(msgspec.Struct, frozen=True):
    """How many decisions a rail did not let pass; `first`: it was the first to say no."""

    rail: str
    count: int
    first: int


class RequestCount(msgspec.Struct, frozen=True):
    """What people asked for; `reason` of what was refused."""

    verb: Verb
    accepted: bool
    reason: str
    count: int


class OutcomeCount(msgspec.Struct, frozen=True):
    """What became of commands; `step` is the action where the command was the whole."""

    step: str
    status: OutcomeStatus | Literal["open"]
    dry_run: bool
    count: int


class RecoveryCount(msgspec.Struct, frozen=True):
    """How far jobs were brought back, and in which mode; None: none was chosen."""

    state: RecoveryState
    mode: RestartMode | None
    dry_run: bool
    count: int


class UpdateCount(msgspec.Struct, frozen=True):
    """What became of updates of code and configuration."""

    state: UpdateState
    count: int


class Lemon(msgspec.Struct, frozen=True, kw_only=True):
    """A node that comes back: what it was blamed for within the lemon window.

    incidents  that blame the node itself
    jobs       different jobs among them
    failures   of them, those that interrupted their job
    kinds      different kinds of incident, sorted
    isolated   how often it was really taken out
    xids       Xid lines of its kernel, None where no kernel log was read
    is_lemon   at or above the limits
    """

    node: str
    incidents: int
    jobs: int
    failures: int
    kinds: list[Kind]
    isolated: int | None
    xids: int | None
    last_at: float
    is_lemon: bool


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, as the audit lists it."""

    at: float
    id: str
    incident: str
    job: str
    action: str
    targets: list[str]
    mode: str
    state: DecisionState
    reason: str
    by: str
    refused_by: list[str] = []


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, of one stretch of time.

    period        what of it was seen, None where nothing dated was
    job           the one job that was asked for, "" of all
    silent_jobs   jobs that the scheduler listed and of which nobody told a step
    has_actions   whether a log of the action service was there: without it nothing is known of acts
    decisions     oldest first, bounded
    """

    period: tuple[float, float] | None
    job: str
    fleet: Productivity
    jobs: list[JobAccount]
    silent_jobs: int
    hours: list[Hour]
    times: list[Spread]
    mechanisms: list[MechanismShare]
    incidents: list[IncidentAccount]
    has_actions: bool
    decided: list[DecisionCount]
    rails: list[RailCount]
    requests: list[RequestCount]
    outcomes: list[OutcomeCount]
    recoveries: list[RecoveryCount]
    updates: list[UpdateCount]
    lemons: list[Lemon]
    decisions: list[Decided]
    notes: list[str]
