"""The ladder: what should be done about an incident, and why. Decides; never acts.

ByteRobust's and Aegis' rules together, as a pure function: the same in replay as live. Rails,
budgets and approval come after it, in the action service. docs/ladder.md shows it whole.
"""

from __future__ import annotations

from actions.policy.case import Case
from actions.policy.ladder import LADDER
from telemetry.findings import Context, Incident, Verdict
from telemetry.settings import PolicySettings


def verdict(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """The first branch that fits, from the most certain rung down; `reason` has its numbers."""
    case = Case(incident, context, policy, now_s)
    branch = next(
        branch
        for rung in LADDER
        if rung.applies(case)
        for branch in rung.branches
        if branch.applies(case)
    )
    return branch.say(case)
