"""What the action service writes into `nodewarden.actions`, and what its rails read.

JSON, one object a record, tagged by `kind`. A `Decision` comes before the `Command` that it allows,
the `Command` (the intent) before anything is done, the `Outcome` after it. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from telemetry.attempts import Attempt
from telemetry.findings import Action, Verdict, When, stable_id

Mode = Literal["observe", "approve", "auto"]
DecisionState = Literal["noted", "waiting", "approved", "denied", "expired", "refused"]
CommandStep = Literal["drain", "undrain", "stop", "clean", "replace", "restart"]
RestartMode = Literal["partial", "in_place", "replacement", "requeue"]
OutcomeStatus = Literal["done", "failed", "unknown", "refused"]
RecoveryState = Literal[
    "running", "suspect", "stopping", "cleaning", "replacing", "restarting", "escalated"
]
Role = Literal["viewer", "operator", "admin"]
Verb = Literal[
    "approve", "deny", "ack", "snooze", "pause", "resume", "isolate", "release", "false_alarm",
    "tried", "read", "update", "rollback",
]  # fmt: skip
UpdateState = Literal[
    "waiting", "ordered", "joined", "running", "matched", "differs", "unproved", "replaced",
    "failed",
]  # fmt: skip


class Rail(msgspec.Struct, frozen=True):
    """One rail's word on a verdict; `reason` names its numbers, passed or not."""

    name: str
    passed: bool
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="decision"):
    """What is to become of one verdict of one incident; each change of `state` is said again.

    id          `decision_id`: the same verdict never gets a second one
    rev         of the incident when the verdict was first seen
    verdict     the ladder's, unchanged
    rails       in the order in which they were asked; those after the first "no" too
    state       noted: nothing is to be done; waiting: for a person; approved: it may be done;
                denied, expired: by a person, by time; refused: a rail, or a check before the act
    reason      one sentence, always: "no" has one too
    by          who decided: "rails", or the person's name
    expires_at  a waiting or approved decision is worth nothing after it
    source      the revision of the incident that this saying answers, or rests on: partition and
                offset of `nodewarden.incidents`
    revision    0 for the first saying, then one more each time
    """

    id: str
    incident: str
    rev: int
    at: float
    verdict: Verdict
    mode: Mode
    rails: list[Rail]
    state: DecisionState
    reason: str
    by: str = "rails"
    expires_at: float | None = None
    source: tuple[int, int] | None = None
    revision: int = 0
    job: str = ""


class Preconditions(msgspec.Struct, frozen=True):
    """What the world was when it was decided; compared again right before the act.

    states   scheduler's word for each target
    owners   who drained each target, "" where nobody
    job, attempt   which run of the job is meant; None where no job is
    boots    target -> when it started, Unix seconds: another time is another machine, or a reboot
    job_state, job_nodes   scheduler's word for the job, and where it runs
    job_user   whose job it is, a user id; job_spares: nodes of its allocation that run nothing;
               None where nobody says it
    """

    states: dict[str, str] = {}
    owners: dict[str, str] = {}
    job: str = ""
    attempt: int | None = None
    boots: dict[str, float] = {}
    job_state: str = ""
    job_nodes: list[str] = []
    job_user: int | None = None
    job_spares: int | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """The intent: acknowledged by the log before anything is done, and written once.

    epoch   of the instance that wrote it: another one leaves it alone for a while
    step    which part of carrying the decision out this is; "" where it is the whole
    mode    of a restart
    exclude nodes that the job must not get again
    readmit nodes that it was kept from by an earlier command, and that were given back since
    fault   the incident's kind, for whoever reads the scheduler's reason; "" where there is none
    versions "code" and "config" -> what the job is to run from this restart on; {}: as before
    """

    id: str
    decision: str
    action: Action | Literal["release"]
    targets: list[str]
    preconditions: Preconditions
    intent_at: float
    expires_at: float
    incident: str = ""
    job: str = ""
    epoch: int = 0
    dry_run: bool = True
    step: CommandStep | Literal[""] = ""
    mode: RestartMode | None = None
    exclude: list[str] = []
    readmit: list[str] = []
    fault: str = ""
    versions: dict[str, str] = {}


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="outcome"):
    """What became of a command; `unknown` (nobody could tell) goes to a person.

    control  as that of a `Request`: where the engine is told that a step of the ladder was made
    next_job under which id the job goes on that was submitted again; "" where it has its own
    """

    command: str
    at: float
    status: OutcomeStatus
    reason: str
    control: tuple[float, int] | None = None
    next_job: str = ""


class Passage(msgspec.Struct, frozen=True):
    """A state that a recovery has left: when it was entered and left, and why it was left."""

    state: RecoveryState
    since: float
    until: float
    reason: str


class Recovery(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="recovery"):
    """How far the carrying out of a decision about a job is; each change is said again, in the
    transaction of the command or the outcome that it belongs to.

    id         of the decision
    state      `running` and `escalated` are its ends: the job runs again, or a person has it
    since      when the state was entered; `began_at`: the first one
    revision   0 for the first saying, then one more each time
    run        which run of the job is meant; None where nobody knew
    mode       of the restart, once it is chosen; `modes_left`: what it falls back to, in order
    attempt    counts commands of one step: each has its own (`command_id`)
    tries      how often a command of this state was held back by a check
    command    of this state, "" where none was given yet; `answered`: what its call said
    out        the targets are out
    stopped    the job was stopped, or may have been: from here on the way back is the restart
    next_job   under which id the job goes on that was submitted again; "" where it has its own
    history    the states before, oldest first, the newest of them where they are many
    """

    id: str
    incident: str
    job: str
    action: Action
    when: When
    targets: list[str]
    state: RecoveryState
    since: float
    at: float
    began_at: float
    reason: str
    revision: int = 0
    mode: RestartMode | None = None
    modes_left: list[RestartMode] = []
    run: int | None = None
    attempt: int = 0
    tries: int = 0
    command: str = ""
    answered: OutcomeStatus | None = None
    out: bool = False
    stopped: bool = False
    dry_run: bool = True
    history: list[Passage] = []
    next_job: str = ""

    @property
    def jobs(self) -> frozenset[str]:
        """All ids of its job."""
        return frozenset({self.job, self.next_job} - {""})

    @property
    def job_now(self) -> str:
        """The id that it has now."""
        return self.next_job or self.job


class Compared(msgspec.Struct, frozen=True):
    """One quantity of the steps that were made twice: before a planned restart and after it.

    steps      so many
    worst, limit  relative to the earlier run: the largest difference of one step; of throughput,
               how much slower the median is
    """

    quantity: str
    steps: int
    worst: float
    limit: float

    @property
    def differs(self) -> bool:
        """Whether it is beyond the limit."""
        return self.worst > self.limit


class Update(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="update"):
    """Other code or another configuration for one job; each change of `state` is said again.

    versions   "code", "config" -> exactly what is to run
    before     what ran of these kinds when it was asked for; a kind that nobody knew is not there
    urgent     not with the next restart, but by one of its own
    state      waiting: for a restart; ordered: it has one of its own (`decision`); joined: a
               restart that is under way runs it (`command`); running: it runs, and its steps are
               not compared yet; matched, differs, unproved (no step was made twice): they are;
               replaced: by another before it ran; failed: its restart did not come about
    forced_at  when it gets a restart of its own at the latest
    joined_at  when the restart that runs it was ordered, the job being stopped by then
    ran_at     when that restart was done; None before
    revision   0 for the first saying, then one more each time
    undoes     the update that it takes back, "" where it is none of that
    next_job   under which id the job runs it that was submitted again; "" where it has its own
    """

    id: str
    job: str
    versions: dict[str, str]
    before: dict[str, str]
    urgent: bool
    state: UpdateState
    asked_at: float
    forced_at: float
    at: float
    by: str
    reason: str
    note: str = ""
    decision: str = ""
    command: str = ""
    joined_at: float | None = None
    ran_at: float | None = None
    undoes: str = ""
    compared: list[Compared] = []
    revision: int = 0
    next_job: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="request"):
    """What a person asked for, taken or refused; the audit's other half.

    by      the token's name, "" where there was none that we know
    target  incident, decision or node
    until   of a snooze
    attempt of "tried": the step of the ladder that was made, and what came of it
    versions of "update": what the job is to run
    control where its Control record stands: started_at and seq of the stream; None where none is
    """

    id: str
    at: float
    by: str
    role: Role | None
    verb: Verb
    target: str
    accepted: bool
    reason: str
    note: str = ""
    until: float | None = None
    attempt: Attempt | None = None
    control: tuple[float, int] | None = None
    versions: dict[str, str] = {}


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="lease"):
    """An instance became the active one; every other one's transactions are fenced by then."""

    at: float
    instance: str
    epoch: int


class SiteFacts(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="site"
):
    """What the rails were told of the site since the record of its kind before: only what changed.

    In the log before the first decision that rests on it, in the same transaction; where it is
    much, in several records. None as a value: nobody says it any more.

    places       where nodes stand: one place, its nodes
    gone         nodes of which nobody says any more where they stand
    drained_by, protected, booted_at   by node
    windows      all of them, where any changed; `more_windows` adds to them: what does not fit into
                 one record, and a window that is there already gets more nodes
    measured     what the services measured, whole
    """

    at: float
    places: list[tuple[Where, list[str]]] = []
    gone: list[str] = []
    drained_by: dict[str, str | None] = {}
    protected: dict[str, bool] = {}
    booted_at: dict[str, float | None] = {}
    windows: list[Window] | None = None
    more_windows: list[Window] = []
    measured: Measured | None = None


class ActRules(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="rules"):
    """The settings that decisions follow from here on; said by the instance that goes by them.

    settings  of `act`, those that decide; an object, so that other versions can read the record
    version   of nodewarden
    """

    at: float
    version: str
    settings: dict[str, Any]


class LedgerPart(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ledger"):
    """A part of a snapshot of the ledger; whole only with all `parts` of the same `id`.

    positions   partition of `nodewarden.incidents` -> the next offset to read
    first_at    when the first instance of all began
    lease_at    when the newest one did
    rules, site what decisions go by, and what was last said of the site
    """

    id: str
    at: float
    part: int
    parts: int
    paused: bool = False
    epoch: int = 0
    first_at: float | None = None
    lease_at: float | None = None
    positions: dict[int, int] = {}
    decisions: list[Decision] = []
    commands: list[Command] = []
    outcomes: list[Outcome] = []
    requests: list[Request] = []
    recoveries: list[Recovery] = []
    updates: list[Update] = []
    rules: ActRules | None = None
    site: list[SiteFacts] = []


ActionRecord = (
    Decision | Command | Outcome | Recovery | Update | Request | Lease | SiteFacts | ActRules
    | LedgerPart
)  # fmt: skip


class Used(msgspec.Struct, frozen=True):
    """Nodes taken out under one scope, within the last hour and the last day."""

    hour: int = 0
    day: int = 0


class Where(msgspec.Struct, frozen=True):
    """Where a node stands; "" where nobody said."""

    rack: str = ""
    leaf: str = ""
    pool: str = ""
    job: str = ""


class Window(msgspec.Struct, frozen=True):
    """A maintenance window: [since, until), of these nodes, or of all where none is named."""

    name: str
    since: float
    until: float
    nodes: list[str] = []


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the services say of themselves; times are Unix seconds, None where nobody said.

    nodes, blind_nodes, telemetry_at   as the engine's workers said at `measured_at`
    listing_at                         when the scheduler last gave a whole listing
    """

    nodes: int | None = None
    blind_nodes: int | None = None
    telemetry_at: float | None = None
    measured_at: float | None = None
    listing_at: float | None = None


class RailContext(msgspec.Struct, frozen=True, kw_only=True):
    """What rails read beside verdict and incident; None where nobody knows.

    used         scope -> nodes taken out: "cluster", "job:<id>", "rack:<name>", "leaf:<name>",
                 "pool:<name>"; a scope that is not there has used nothing
    places       node -> where it stands
    attempts     node -> how often it was taken out within the attempts' window
    acted_at     node -> when something was last done to it
    booted_at    node -> its last boot: it settles for a while
    protected    nodes that are never taken out, by inventory or settings
    drained_by   node -> who else drained it; it is left alone
    undone_at    node -> when a person released it: a person's word wins
    windows      maintenance windows that are known, open or not
    sizes        scope -> how many nodes it has; a scope that is not there is of unknown size
    nodes        how many nodes the cluster has
    blind_nodes  how many of them report nothing
    telemetry_age_s, listing_age_s  how old the newest reading and the newest whole listing are
    paused       the kill switch
    first_start  the ledger is empty: nothing is known of what was done before
    breaker_open the breaker was open at the last decision (hysteresis)
    recent       nodes that verdicts wanted out, and when, within the breaker's window alone
    """

    used: dict[str, Used] = {}
    places: dict[str, Where] = {}
    attempts: dict[str, int] = {}
    acted_at: dict[str, float] = {}
    booted_at: dict[str, float] = {}
    protected: list[str] = []
    drained_by: dict[str, str] = {}
    undone_at: dict[str, float] = {}
    windows: list[Window] = []
    sizes: dict[str, int] = {}
    nodes: int | None = None
    blind_nodes: int | None = None
    telemetry_age_s: float | None = None
    listing_age_s: float | None = None
    paused: bool = False
    first_start: bool = False
    breaker_open: bool = False
    recent: Mapping[str, float] = {}


def decision_id(incident: str, verdict: Verdict) -> str:
    """The same for the same verdict of the same incident, whoever decides and however often."""
    return stable_id(
        "decision", incident, verdict.action, verdict.when, verdict.rung, f"{verdict.at!r}",
        *verdict.targets,
    )  # fmt: skip


def command_id(decision: str, step: str = "", attempt: int = 0) -> str:
    """One decision allows one command; where it takes several steps, one each and attempt."""
    return stable_id("command", decision, *((step, str(attempt)) if step else ()))
