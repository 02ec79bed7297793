"""The states of a job that is brought back: what each waits for and commands, and how it ends.

The machine goes by this table, and docs/recovery.md is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from telemetry.actions import CommandStep, RecoveryState, RestartMode
from telemetry.findings import Action

# What ends a state. done: the command, as it is read back; needless: there is none to give;
# refused: by its executor, which does not support it, or not here; failed: for certain;
# unreadable: nobody can tell; prevented: a check held it back too often; over: no need any more
Happening = Literal[
    "approved", "triggered", "over", "done", "needless", "refused", "failed", "unreadable",
    "prevented", "timed_out",
]  # fmt: skip
Limit = Literal["", "now_s", "stop_s", "clean_s", "replace_s", "restart_s"]

RESTARTING: frozenset[Action] = frozenset({"isolate_and_restart", "restart", "rollback"})
ENDED: frozenset[RecoveryState] = frozenset({"running", "escalated"})
# These bring other nodes in: without a node that goes they are no different from the next.
OF_TARGETS: frozenset[RestartMode] = frozenset({"partial", "replacement"})


@dataclass(frozen=True, slots=True)
class Edge:
    """One way out of a state.

    falls_back  with the next mode of restarting, from `to` on; where none is left: escalated
    words       for the docs
    """

    on: Happening
    to: RecoveryState
    words: str
    falls_back: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One state.

    trigger  what brings a job into it, in words
    actor    who does what is done in it
    step     the command that it gives; "" none
    limit    the setting of `[act.recovery]` that bounds it
    """

    state: RecoveryState
    trigger: str
    actor: str
    step: CommandStep | Literal[""]
    limit: Limit
    edges: tuple[Edge, ...]

    def edge(self, on: Happening) -> Edge:
        """The way out. Every happening that the machine can say in this state has one."""
        return next(edge for edge in self.edges if edge.on == on)


def _page(on: Happening, words: str) -> Edge:
    return Edge(on, "escalated", words)


def _next_mode(on: Happening, words: str) -> Edge:
    return Edge(on, "stopping", words, falls_back=True)


_TABLE = (
    Row(
        "running", "the job ends steps; or it is to be restarted no more", "nobody", "", "",
        (Edge("approved", "suspect", "a decision to restart the job is approved"),),
    ),
    Row(
        "suspect", "a decision to restart the job is approved", "scheduler", "drain", "now_s",
        (
            Edge("triggered", "stopping",
                 "the targets are out, and it is time: at once, a checkpoint, the exit of a "
                 "process, a communication time-out"),
            Edge("over", "running",
                 "the incident is over, a person gave a node back, or the job ended or runs "
                 "elsewhere by itself: nothing was stopped"),
            _page("refused", "the targets cannot be taken out"),
            _page("failed", "taking the targets out failed"),
            _page("unreadable", "nobody can tell whether the targets are out"),
            _page("prevented", "a check held the drain back too often"),
            _page("timed_out", "not in time: no trigger, no replacement, or a rail says no"),
        ),
    ),
    Row(
        "stopping", "the trigger; or a mode that did not work", "scheduler or launcher", "stop",
        "stop_s",
        (
            Edge("done", "cleaning", "the job is stopped"),
            Edge("over", "running",
                 "the incident is over, a person gave a node back, or the job ended or runs again "
                 "by itself: no other run is stopped"),
            _next_mode("refused", "the mode is not supported here"),
            _next_mode("failed", "stopping failed for certain"),
            _page("unreadable", "nobody can tell whether it is stopped"),
            _page("prevented", "a check held the stop back too often"),
            _page("timed_out", "it does not stop"),
        ),
    ),
    Row(
        "cleaning", "the job is stopped", "launcher, or the scheduler's epilog", "clean", "clean_s",
        (
            Edge("done", "replacing",
                 "no rank of the job is left, and what it held is free: device memory, shared "
                 "memory, ports; live checkpoint buffers stay"),
            Edge("needless", "replacing", "a requeue ends what is left by itself"),
            _next_mode("refused", "cleaning is not supported in this mode"),
            _next_mode("failed", "something of the job is left"),
            _page("unreadable", "nobody can tell whether anything is left"),
            _page("prevented", "a check held the cleaning back too often"),
            _page("timed_out", "it is not clean in time"),
        ),
    ),
    Row(
        "replacing", "nothing of the job is left", "scheduler", "replace", "replace_s",
        (
            Edge("done", "restarting", "other nodes are there"),
            Edge("needless", "restarting",
                 "the mode has its own: spare nodes of the allocation, or the scheduler's choice"),
            _next_mode("refused", "no replacement in this mode"),
            _next_mode("failed", "replacing failed for certain"),
            _page("unreadable", "nobody can tell which nodes the job has"),
            _page("prevented", "a check held the replacement back too often"),
            _page("timed_out", "no replacement in time"),
        ),
    ),
    Row(
        "restarting", "the nodes are there", "scheduler or launcher", "restart", "restart_s",
        (
            Edge("done", "running", "the job runs again"),
            _next_mode("refused", "the mode is not supported here"),
            _next_mode("failed", "the restart failed for certain"),
            _page("unreadable", "nobody can tell whether it was restarted"),
            _page("prevented", "a check held the restart back too often"),
            _page("timed_out", "the job does not run again in time"),
        ),
    ),
    Row(
        "escalated", "a time-out, an unknown outcome, or no mode is left", "a person, who is paged",
        "", "", (),
    ),
)  # fmt: skip

ROWS: dict[RecoveryState, Row] = {row.state: row for row in _TABLE}
