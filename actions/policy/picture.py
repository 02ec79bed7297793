"""docs/ladder.md, made from the table: `python -m actions.policy.picture > docs/ladder.md`."""

from __future__ import annotations

from collections.abc import Iterator

from actions.policy.ladder import LADDER
from actions.policy.settled import PROVES
from actions.policy.table import Rung
from telemetry.settings import PolicySettings

POLICY = PolicySettings()
HEAD = """\
# The ladder

What should be done about an incident: the first rung whose question is answered with yes, and on it
the first branch that applies; where none does, the next rung is asked. The rules are those of
ByteRobust (SOSP'25) and Aegis (NSDI'25). The ladder decides and never acts; modes, budgets and
approval come after it. Every verdict has a reason that names its numbers. Numbers in this page are
the defaults of `[engine.policy]`.

This page is made from the code: `python -m actions.policy.picture > docs/ladder.md`.

## Overview
"""
TAIL = """\
## What the ladder knows of earlier steps

It asks for a step (checks, retry, rollback, replay, RootDiag, ConfigCheck and NetDiag, stacks) and
goes on when it is told what came of it (`nodewarden tried`): a `Control` record with `action`
"attempted", the incident as `target`, and in `attempt` the `step`, the `nodes` that it found ([]
for none) and whether it `worked`. An eviction is seen to be made when none of its nodes works for
the job any more, and to have worked when the job still ends steps 10 min later. What nobody tells
stays unknown: the step that is due is asked for again.

The step that worked sets the final cause, which is appended to the incident:

| step | final cause |
|---|---|
"""
GROUP = """
## Whole or ranked

The stacks of a job that hangs or is slow name the smallest parallel group that holds all outliers,
and one or two of its machines are really bad. `group_eviction = "cheaper"` takes the way that loses
fewer GPU-hours as expected, and the reason shows both:

    lost = job's GPUs x group_restart_s + evicted GPUs x group_diagnosis_s
           + (1 - chance) x job's GPUs x group_again_s

`whole` evicts the group and never misses; `ranked` evicts the `ranked_nodes` that stand out most,
and `chance` is their share of the group's scores. A way is closed where fewer replacements are free
than it needs, or where the last copy of a part of the checkpoint would go.

## Replacements and code

A replacement is a node that the scheduler calls idle and nothing else (Slurm `IDLE`, Kubernetes
`READY` and without a job), in the pods of the job, with as many GPUs as the job's nodes have by
their agents' word, neither protected nor blind nor under suspicion. Where no scheduler says what
nodes do, or no agent what they are made of, nobody knows, and what is unknown closes no way.

A job's code is what its owner names: `code=VERSION` in the comment of a Slurm job, as `sbatch
--comment=code=v1.2`, or `"code"` in `jobs.json`. It changed when an attempt began with another one
than the attempt before, or than the job of the same name that had ended.

Who holds copies of a checkpoint in the memory of nodes, nobody tells nodewarden: the verdict says
"checkpoint copies unknown", and no way is closed by it. Where a job keeps its only checkpoint in
the memory of its nodes, evictions of groups belong to a person: `act.rails.mode`.
"""


def page() -> str:
    """The whole page."""
    proves = "".join(
        f"| {step.replace('_', ' ')} | {cause.replace('_', ' ')} |\n"
        for step, cause in PROVES.items()
    )
    return "\n".join([HEAD, _overview(), _rungs(), TAIL + proves + GROUP])


def _overview() -> str:
    """The rungs as a picture: down on no, right on yes."""
    lines = ["```mermaid", "flowchart TD", '    start(["an incident"]) --> r1']
    for number, rung in enumerate(LADDER, start=1):
        outcomes = "<br/>".join(dict.fromkeys(branch.does for branch in rung.branches))
        lines.append(f'    r{number}{{"{number}. {rung.asks}"}}')
        lines.append(f'    r{number} -- yes --> d{number}["{outcomes}"]')
        if number < len(LADDER):
            lines.append(f"    r{number} -- no --> r{number + 1}")
    return "\n".join([*lines, "```", ""])


def _rungs() -> str:
    return "\n".join(line for n, rung in enumerate(LADDER, 1) for line in _rung(n, rung))


def _rung(number: int, rung: Rung) -> Iterator[str]:
    yield f"## {number}. {rung.name}\n"
    yield f"{rung.asks}\n"
    yield "| when | what |"
    yield "|---|---|"
    yield from (
        f"| {branch.when.format(policy=POLICY)} | {branch.does} |" for branch in rung.branches
    )
    yield ""


if __name__ == "__main__":
    print(page(), end="")
