"""What a job's launcher and the action service tell each other, in files of the job's directory.

An order names one command and is written once; the status is what runs where now. Both are JSON.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

ORDER_FILE, STATUS_FILE, VERSIONS_FILE = "order.json", "status.json", "versions.json"
PARTS_DIRECTORY = "parts"
NODES_MAX = 16_384
RANKS_MAX = 1_024  # of one node
RESULTS_MAX = 32  # the newest are kept
VERSIONS_MAX = 16

JOB_PATTERN = r"^[0-9]{1,18}(_[0-9]{1,10})?$"
NODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,252}$"
ID_PATTERN = r"^[A-Za-z0-9_.\-]{1,128}$"
VERSION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+\-]{0,253}$"

JobName = Annotated[str, Meta(pattern=JOB_PATTERN)]
NodeName = Annotated[str, Meta(pattern=NODE_PATTERN)]
Version = Annotated[str, Meta(pattern=VERSION_PATTERN)]
VersionKind = Literal["code", "config"]
Versions = Annotated[dict[VersionKind, Version], Meta(max_length=VERSIONS_MAX)]
Nodes = Annotated[list[NodeName], Meta(max_length=NODES_MAX)]
Doing = Literal["stop", "clean", "restart"]
LaunchMode = Literal["partial", "in_place"]
PartState = Literal["starting", "running", "ending", "ended"]
Phase = Literal["starting", "running", "stopping", "stopped", "cleaning", "failed", "over"]
ResultState = Literal["running", "done", "refused", "failed"]


class LaunchOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to do with the processes of a job that keeps its allocation.

    id          of the command; the same one is carried out once
    attempt     of the job (SLURM_RESTART_COUNT): an order for another run is refused
    nodes       partial: whose processes end and start again; in_place: not looked at
    exclude     nodes that get no process any more; the job's spare nodes take their place
    versions    what the new processes are to run; {}: as before
    expires_at  Unix seconds; a later look at it refuses it
    """

    id: Annotated[str, Meta(pattern=ID_PATTERN)]
    job: JobName
    attempt: Annotated[int, Meta(ge=0)]
    do: Doing
    mode: LaunchMode
    expires_at: float
    nodes: Nodes = []
    exclude: Nodes = []
    versions: Versions = {}


class LaunchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order; `running` until it is known."""

    id: str
    do: Doing
    state: ResultState
    reason: str
    at: float


class LaunchedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one node: one step of the scheduler.

    generation  of the start, counted over the whole job: another one is another set of processes
    step        the scheduler's number; None while it is not known
    pids        of the ranks, in their order; [] while they are not known
    code        exit status of the step once it ended, -N where signal N ended it
    """

    node: NodeName
    node_rank: Annotated[int, Meta(ge=0)]
    generation: int
    state: PartState
    step: int | None = None
    pids: Annotated[list[int], Meta(max_length=RANKS_MAX)] = []
    code: int | None = None


class LaunchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher's word on itself, said again at each change and each few seconds.

    generation  of the newest start
    partial     the training can go on when only some of its processes are replaced
    spares      allocated nodes that run nothing and may be used
    excluded    those that may not
    results     of the newest orders, oldest first
    """

    job: JobName
    attempt: int
    at: float
    phase: Phase
    generation: int
    partial: bool
    parts: Annotated[list[LaunchedPart], Meta(max_length=NODES_MAX)] = []
    spares: Nodes = []
    excluded: Nodes = []
    versions: Versions = {}
    results: Annotated[list[LaunchResult], Meta(max_length=RESULTS_MAX)] = []
