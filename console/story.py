"""An incident in one English sentence: who, what, since when, how sure, what the scheduler hears.

Pure: the same incident, the same sentence. Names are data and may be hostile; they pass `visible`.
"""

from __future__ import annotations

import math

from console.model import TimelineEntry
from console.text import clock, duration, name, several, utc, visible
from telemetry.findings import ACTING, Action, Cause, Incident, Kind, Verdict, When

# Each reads on after the name of who it is about.
KIND_WORDS: dict[Kind, str] = {
    "gpu_fault": "has a GPU that reported a fault",
    "gpu_memory": "has a GPU with memory errors",
    "gpu_lost": "has lost a GPU (it fell off the bus)",
    "nvlink_fault": "has a failing NVLink connection",
    "gpu_slow": "has a GPU slower than its peers",
    "gpu_thermal": "has an overheating GPU",
    "gpu_power": "has a GPU that draws less power than its peers",
    "pcie_degraded": "has a degraded PCIe link",
    "nic_fault": "has a faulty network port",
    "nic_flap": "has a network port that goes down and up",
    "nic_congested": "has a congested network port",
    "fabric": "is behind a network fault that many nodes share",
    "storage": "has a storage fault",
    "host": "has a fault of the host",
    "node_silent": "went silent",
    "job_hang": "makes no progress",
    "job_slow": "runs slower than before",
    "loss_anomaly": "produced an abnormal loss",
    "user_error": "failed in its own code",
    "fleet_shift": "changed everywhere at once",
    "telemetry_gap": "sends no telemetry (a blind spot, not a fault)",
}

CAUSE_WORDS: dict[Cause, str] = {
    "hardware": "hardware",
    "network": "the network",
    "site_software": "site software",
    "user_code": "the user's code",
    "common_mode": "something common to all",
    "telemetry": "the telemetry itself",
    "unknown": "unknown",
}

WHEN_WORDS: dict[When, str] = {
    "now": "now",
    "at_checkpoint": "at the next checkpoint",
    "at_job_end": "when the job ends",
}


def story(incident: Incident) -> str:
    """The incident in one sentence."""
    parts = [f"{who(incident)} {KIND_WORDS[incident.kind]} since {utc(since(incident))}"]
    if incident.job and incident.scope != f"job:{incident.job}":
        parts.append(f" (job {name(incident.job)})")
    if incident.closed_at is not None:
        parts.append(f", over at {clock(incident.closed_at)}")
    parts.append(f"; {sure(incident)}; {told(incident)}.")
    return "".join(parts)


def who(incident: Incident) -> str:
    """Whom it is about: the node and its part, the leaf switch, the job, the cluster."""
    sort, _, rest = incident.scope.partition(":")
    nodes = suspects(incident)
    if sort == "leaf":
        return f"Leaf switch {name(rest)}" + (f" ({_nodes(nodes)})" if nodes else "")
    if sort == "cluster":
        return "The cluster" + (f" ({_nodes(nodes)})" if nodes else "")
    if not nodes:
        return f"Job {name(rest)}" if sort == "job" else name(rest or incident.scope)
    entities = {s.entity for s in incident.suspects if s.node == nodes[0] and s.entity}
    if len(nodes) == 1 and len(entities) == 1:
        return f"{name(nodes[0])} ({name(entities.pop())})"
    return several(nodes)


def suspects(incident: Incident) -> list[str]:
    """The suspected nodes, each once, the most suspected first."""
    return list(dict.fromkeys(suspect.node for suspect in incident.suspects if suspect.node))


def since(incident: Incident) -> float:
    """The earliest onset in the evidence; when it was opened where there is none."""
    onsets = [item.onset for item in incident.evidence if math.isfinite(item.onset)]
    return min(onsets, default=incident.opened_at)


def sure(incident: Incident) -> str:
    """How sure we are, and of which cause."""
    cause = f"cause: {CAUSE_WORDS[incident.cause]}"
    if incident.certain:
        return f"certain, {cause}"
    return f"{percent(incident.confidence)} sure, {cause}"


def percent(share: float) -> str:
    """A share of 0 to 1 as "93 %", never rounded up to certainty; "not" where it is no number."""
    if not math.isfinite(share):
        return "not"
    return f"{min(math.floor(share * 100 + 1e-9), 100)} %"


def act(verdict: Verdict, job: str) -> str:
    """What is to be done, as an order: "Isolate n17 and restart job j1 at the next checkpoint"."""
    the_job = f"job {name(job)}" if job else "the job"
    nodes = several(verdict.targets, 8) if verdict.targets else "nobody"
    order: dict[Action, str] = {
        "isolate": f"Isolate {nodes}",
        "isolate_and_restart": f"Isolate {nodes} and restart {the_job}",
        "restart": f"Restart {the_job}, isolate nobody",
        "rollback": f"Roll {the_job} back to a checkpoint",
        "diagnose": "Diagnose" + (f" {nodes}" if verdict.targets else "") + ", isolate nobody",
        "page": "Page a person, isolate nobody",
        "none": "Do nothing",
    }
    when = f" {WHEN_WORDS[verdict.when]}" if verdict.action in ACTING else ""
    return order[verdict.action] + when


def told(incident: Incident) -> str:
    """What the scheduler would be told."""
    verdict = incident.verdict
    if verdict.action in ACTING:
        order = act(verdict, incident.job)
        return f"the scheduler would be told to {order[0].lower()}{order[1:]}"
    if verdict.action == "page":
        return "a person would be paged and the scheduler told nothing"
    if verdict.action == "diagnose":
        aim = f" of {several(verdict.targets)}" if verdict.targets else ""
        return f"a diagnosis{aim} would be asked for, isolating nobody"
    return "the scheduler would be told nothing"


def ordered(incidents: list[Incident]) -> list[int]:
    """Positions as a tired reader needs them: what acts, then the most severe, then the oldest."""
    rank = {"critical": 0, "warning": 1, "info": 2}
    acting = {"isolate": 0, "isolate_and_restart": 0, "restart": 1, "rollback": 1}

    def key(place: int) -> tuple[int, int, float, str]:
        one = incidents[place]
        return (acting.get(one.verdict.action, 2), rank[one.severity], one.opened_at, one.id)

    return sorted(range(len(incidents)), key=key)


def verdict_line(verdict: Verdict, job: str) -> str:
    """One verdict in a line: the order and its reason."""
    return f"{act(verdict, job)}: {visible(verdict.reason)}"


def later_verdicts(incident: Incident) -> list[Verdict]:
    """The verdicts beside the one that counts, in the order in which they were given."""
    return [verdict for verdict in incident.verdicts if verdict != incident.verdict]


def timeline(incident: Incident) -> list[TimelineEntry]:
    """The incident's own times, oldest first: onsets, opening, verdicts, end."""
    entries = [
        TimelineEntry(item.onset, f"{_subject(item.node, item.entity)}{item.text}")
        for item in incident.evidence
    ]
    entries.append(TimelineEntry(incident.opened_at, "incident opened"))
    said = [incident.verdict, *later_verdicts(incident)]
    entries += [TimelineEntry(v.at, f"verdict: {verdict_line(v, incident.job)}") for v in said]
    if incident.closed_at is not None:
        lasted = duration(incident.closed_at - incident.opened_at)
        entries.append(TimelineEntry(incident.closed_at, f"incident closed after {lasted}"))
    return sorted(entries, key=lambda entry: entry.at)


def _subject(node: str, entity: str) -> str:
    where = " ".join(part for part in (node, entity) if part)
    return f"{where}: " if where else ""


def _nodes(nodes: list[str]) -> str:
    count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
    return f"{count}: {several(nodes)}"
