"""docs/recovery.md, from the table: `python -m actions.recovery.picture > docs/recovery.md`."""

from __future__ import annotations

from collections.abc import Iterator

from actions.recovery.table import ROWS, Edge, Row
from telemetry.settings import RecoverySettings

SETTINGS = RecoverySettings()
HEAD = """\
# How a job is brought back

A decision to restart a job (`isolate_and_restart`, `restart`, `rollback`) is carried out state by
state. Each state gives at most one command, with its own intent in the log before it is done, and a
record `recovery` says where the job stands: `nodewarden show ID` lists them, and
`nodewarden_act_recoveries{state}` counts them. An instance that takes over goes on in the state in
which the one before it ended. `isolate` alone and `release` are one command and have no states.

This page is made from the code: `python -m actions.recovery.picture > docs/recovery.md`. Numbers
are the defaults of `[act.recovery]`.

## Overview
"""
TAIL = """\
## What holds in every state

- **A call that may have been made is never made again.** It is read back (every `look_s`) until
  what it wanted is so; where nobody can tell, or not within the state's time, a person is paged.
  A scheduler that says "done" and did nothing, hangs, or is away ends there too.
- **A command that a check held back** was not given to anybody: it gets a new intent, after a wait
  that doubles, at most `tries_max` times. Checks are: the scheduler was not seen, it is not what it
  was when the intent was written, the intent is too old, everything is paused. So does a command
  that its executor refused where no other mode is left: nothing was done, and it may pass.
- **Rails are asked until the job is stopped.** After that the way back is the restart: only a pause
  holds it, and the state's time goes on.
- **A person who is paged has it.** Nothing is done by itself any more for this decision.

## When the job is stopped

`when` of the verdict: `now`, at the next checkpoint (`at_checkpoint`), or never, since its end is
waited for (`at_job_end`: the nodes are out, and nothing is restarted). The exit of a process and a
communication time-out end every waiting at once: there is nothing left to lose. A job that still
progresses is not stopped unless as many replacements are known to be free as nodes go, nor for a
communication time-out that it has got over.
Of two recoveries of one job the later only takes its nodes out, and waits.

## The modes of a restart

In the order of `modes`; the first that can be done is taken, and each that cannot be done says why
before the next is tried.

| mode | does | needs nodes that go |
|---|---|---|
| `partial` | the ranks of the nodes that go start anew; others keep their processes | yes |
| `in_place` | all processes end and start again in the same allocation | no |
| `replacement` | another node is brought into the allocation first | yes |
| `requeue` | the job goes back to the queue, and gets nodes without those that go | no |

## What cleaning frees

Ranks of the job that are left are killed, and with them go the device memory and the ports that
they held; shared memory of the job is removed. What belongs to another job, or to nobody that is
known, stays, and so do checkpoint buffers in shared memory: a restart may load from them.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, _overview(), _states(), *_details(), TAIL])


def _overview() -> str:
    """The way of a job where all goes well, fall-backs, and where it ends."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> running"]
    for row in ROWS.values():
        lines += [f"    {row.state} --> {to}: {on}" for to, on in _joined(row)]
    return "\n".join([*lines, "    escalated --> [*]", "```", ""])


def _joined(row: Row) -> Iterator[tuple[str, str]]:
    """Edges to the same state are one arrow."""
    ways: dict[str, list[str]] = {}
    for edge in row.edges:
        on = edge.on.replace("_", " ")
        ways.setdefault(edge.to, []).append(f"{on} (next mode)" if edge.falls_back else on)
    yield from ((to, ", ".join(on)) for to, on in ways.items())


def _states() -> str:
    lines = [
        "| state | trigger | actor | command | time | on time-out |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in ROWS.values():
        late = next((edge.to for edge in row.edges if edge.on == "timed_out"), "")
        step = f"`{row.step}`" if row.step else ""
        lines.append(
            f"| {row.state} | {row.trigger} | {row.actor} | {step} | {_limit(row)} | {late} |"
        )
    return "\n".join([*lines, ""])


def _limit(row: Row) -> str:
    if not row.limit:
        return ""
    lasts = f"`{row.limit}` {getattr(SETTINGS, row.limit):g} s"
    if row.limit != "now_s":
        return lasts
    return (
        f"{lasts}; `checkpoint_s` {SETTINGS.checkpoint_s:g} s, `job_end_s` {SETTINGS.job_end_s:g} s"
    )


def _details() -> Iterator[str]:
    for row in ROWS.values():
        if row.edges:
            yield f"## {row.state}\n\n| what | means | then |\n|---|---|---|"
            yield "\n".join([*(_way(edge) for edge in row.edges), ""])


def _way(edge: Edge) -> str:
    then = f"{edge.to} in the next mode; escalated where none is left"
    return (
        f"| {edge.on.replace('_', ' ')} | {edge.words} | {then if edge.falls_back else edge.to} |"
    )


if __name__ == "__main__":
    print(page(), end="")
