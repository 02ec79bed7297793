"""What people get to see: incidents as they stand, with all that was decided, asked and done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from actions.desk import Reply
from actions.ledger import Ledger
from telemetry.actions import Decision
from telemetry.findings import Incident


def shown(target: str, ledger: Ledger, incidents: Mapping[str, Incident]) -> Reply:
    """What is seen of "incidents", "incidents/ID", "decisions", "recoveries", "versions/JOB"."""
    what, _, name = target.partition("/")
    if what == "recoveries":
        return Reply(200, {"recoveries": _plain(list(ledger.recoveries.values()))})
    if what == "decisions":
        return Reply(200, {"decisions": _plain(list(ledger.decisions.values()))})
    if what == "versions":
        register = ledger.versions
        return Reply(200, {
            "job": name, "running": register.running(name), "next": register.to_run(name),
            "updates": _plain(register.of(name)),
        })  # fmt: skip
    if not name:
        found = [_described(ledger, one) for one in incidents.values()]
        return Reply(200, {"incidents": found, "paused": ledger.paused})
    decision = ledger.decisions.get(name)
    incident = incidents.get(decision.incident if decision is not None else name)
    if incident is None and decision is None:
        return Reply(404, {"error": f"no incident and no decision {name}"})
    body: dict[str, Any] = {} if incident is None else _described(ledger, incident)
    of = decision.incident if decision is not None else name
    return Reply(200, {**body, **_audit(ledger, of, decision)})


def _described(ledger: Ledger, incident: Incident) -> dict[str, Any]:
    return {
        "incident": _plain(incident), "acked_by": ledger.acked.get(incident.id, ""),
        "snoozed_until": ledger.snoozed.get(incident.id),
    }  # fmt: skip


def _audit(ledger: Ledger, incident: str, asked: Decision | None) -> dict[str, Any]:
    """Of an incident; of a person's own decision, which is of none, and what became of it."""
    decisions = list(ledger.of_incident(incident)) if incident else []
    if asked is not None and asked.id not in {one.id for one in decisions}:
        decisions.append(asked)
    of = {one.id for one in decisions}
    commands = [one for decision in decisions for one in ledger.commands_of(decision.id)]
    recoveries = [ledger.recoveries[one.id] for one in decisions if one.id in ledger.recoveries]
    outcomes = [ledger.outcomes[one.id] for one in commands if one.id in ledger.outcomes]
    requests = [
        one for one in ledger.requests.values() if one.target in of | {incident}
    ]  # fmt: skip
    return {
        "decisions": _plain(decisions), "commands": _plain(commands),
        "outcomes": _plain(outcomes), "requests": _plain(requests),
        "recoveries": _plain(recoveries),
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
