"""What the ladder has to know of the moment: who is heard, what the job does, who is protected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streams.attempts import known_of
from streams.counters import Coverage
from streams.inventory import Inventory
from streams.standby import replacements
from telemetry.findings import Context

if TYPE_CHECKING:
    from streams.fold import Fold
    from telemetry.findings import Incident, Isolation


def context_of(fold: Fold, incident: Incident, ledger: list[Isolation]) -> Context:
    """What is true around the incident at the fold's `now`."""
    inventory, now = fold.inventory, fold.now
    expected = inventory.expected()
    blind = _blind(inventory, expected, fold.settings.silence.patience_s, now)
    job_nodes = list(inventory.job_nodes(incident.job, now))
    return Context(
        job_nodes=job_nodes,
        job_progressing=fold.progress.progressing(incident.job, now),
        replacements=replacements(fold, job_nodes, blind),
        ledger=ledger,
        blind_share=len(blind) / len(expected) if expected else 0.0,
        protected=inventory.protected(),
        unlisted=inventory.unlisted({suspect.node for suspect in incident.suspects} - {""}),
        job_still_s=fold.progress.still_s(incident.job),
        job_failed=bool(incident.job) and fold.judge.failed(incident.job),
        attempts=known_of(fold, incident.job),
        gpus_per_node=inventory.gpus_per_node(incident.job),
        code_changed_at=inventory.code_changed_at(incident.job),
    )


def coverage(inventory: Inventory, patience_s: float, now: float) -> Coverage:
    """Who should report and who does, at `now`."""
    expected = inventory.expected()
    blind = _blind(inventory, expected, patience_s, now)
    return Coverage(len(expected), len(expected) - len(blind), blind)


def _blind(
    inventory: Inventory, expected: Sequence[str], patience_s: float, now: float
) -> list[str]:
    """Nodes that should report and do not."""
    return [
        node
        for node in expected
        if (heard := inventory.last_heard_s(node)) is None
        or now - heard > max(patience_s, inventory.patience_s(node))
    ]
