"""The ladder: what should be done about an incident, and why. Decides; never acts.

ByteRobust's and Aegis' rules together, as a pure function: the same in replay as live. Rails,
budgets and approval come after it, in the action service.
"""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.findings import ISOLATING, Action, Context, Evidence, Incident, Kind, Verdict, When
from telemetry.settings import PolicySettings

STEP_TIME = "step_time_s"
SAME_PLACE = "_same_place"  # application errors that come back at one place of one GPU
# Faults that slow a job and seldom stop it.
DEGRADING: frozenset[Kind] = frozenset({"gpu_thermal", "gpu_power", "gpu_slow", "pcie_degraded"})


def verdict(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """The first rung that fits, from the most certain down; `reason` says it with its numbers."""
    if incident.kind == "telemetry_gap" or incident.cause == "telemetry":
        return _telemetry(incident, now_s)
    if (given := _given(incident, context)) is not None:
        return given
    if incident.certain:
        return _certain(incident, context, now_s)
    if incident.kind == "user_error":
        return _user_code(incident, now_s)
    if _is_shared(incident):
        return _shared(incident, now_s)
    if incident.kind == "node_silent":
        return _silent(incident, context, policy, now_s)
    if _step_time(incident) is not None:
        return _slow(incident, context, policy, now_s)
    if incident.kind == "nic_flap":
        return _flap(incident, context, policy, now_s)
    if incident.kind == "loss_anomaly" and {e.detector for e in incident.evidence} == {"curves"}:
        return _spike(incident, now_s)
    if incident.kind in ("loss_anomaly", "job_hang", "job_slow"):
        return _no_suspect(incident, now_s)
    if any(line.metric.endswith(SAME_PLACE) for line in incident.evidence):
        return _same_place(incident, now_s)
    if incident.kind == "gpu_lost" and context.job_progressing is False:
        return _lost(incident, context, policy, now_s)
    return _uncertain(incident, now_s)


def _telemetry(incident: Incident, now_s: float) -> Verdict:
    reason = f"We are blind, the nodes may be well: {_first_text(incident)}. Page ourselves."
    return _said("telemetry", "page", reason, now_s)


def _given(incident: Incident, context: Context) -> Verdict | None:
    """The verdict that already isolated all of this incident's suspects, repeated as it was."""
    done = {line.node for line in context.ledger if line.incident == incident.id}
    if not done or not done.issuperset(_suspect_nodes(incident)):
        return None
    acting = [v for v in (incident.verdict, *incident.verdicts) if v.action in ISOLATING]
    return acting[0] if acting else None


def _certain(incident: Incident, context: Context, now_s: float) -> Verdict:
    """A proven machine fault: at once, or at the next checkpoint where the job still progresses."""
    reason = (
        f"One observation proves this machine fault ({incident.kind}): {_first_text(incident)}."
    )
    waits = incident.kind in DEGRADING and context.job_progressing is True
    when: When = "at_checkpoint" if waits else "now"
    if waits:
        reason += " The job is slowed and not stopped, so at its next checkpoint."
    return _isolation("certain machine fault", incident, context, reason, when, now_s)


def _user_code(incident: Incident, now_s: float) -> Verdict:
    reason = (
        f"The job's own code failed, no node is to blame: {_first_text(incident)}. "
        "Notify the owner; roll the code back if it changed lately."
    )
    return _said("user code", "page", reason, now_s)


def _spike(incident: Incident, now_s: float) -> Verdict:
    reason = (
        f"A curve jumped: {_first_text(incident)}. A finite spike often passes by itself, and no "
        "curve accuses a node: notify the owner, who may roll back."
    )
    return _said("loss spike", "page", reason, now_s)


def _is_shared(incident: Incident) -> bool:
    """Whether the story is of many nodes at once."""
    leaf = any(suspect.entity.startswith("leaf:") for suspect in incident.suspects)
    common = incident.cause == "common_mode" or incident.kind in ("fabric", "fleet_shift")
    return leaf or common or incident.scope.startswith("leaf:")


def _shared(incident: Incident, now_s: float) -> Verdict:
    leaves = sorted(s.entity.removeprefix("leaf:") for s in incident.suspects if not s.node)
    nodes = {line.node for line in incident.evidence if line.node}
    if not nodes and any(line.entity.startswith("switch:") for line in incident.evidence):
        reason = (
            f"A switch tells of itself: {_first_text(incident)}. Page the network team, isolate "
            "nobody."
        )
        return _said("common mode, fabric or leaf", "page", reason, now_s)
    if leaves:
        whose = f"share the leaf switch {', '.join(leaves)}"
    else:
        whose = "are too many of the job to be each at fault"
    reason = (
        f"Together {len(nodes)} nodes suffer, and they {whose}: a matter of what they share. "
        "Page the network or site team, isolate nobody."
    )
    return _said("common mode, fabric or leaf", "page", reason, now_s)


def _silent(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """Silence alone isolates nobody; a job that stands still besides is a second witness."""
    rung = "node silent"
    lead = f"Nobody hears it: {_first_text(incident)}"
    nodes = _suspect_nodes(incident)
    due_s = incident.opened_at + policy.silent_wait_s
    few = 0 < len(nodes) <= policy.suspects_max and context.blind_share <= policy.blind_share_max
    held = few and set(nodes) <= set(context.job_nodes)
    if held and _stood_before(incident, context):
        reason = f"{lead}, but its job {incident.job} stood still without it: page, isolate nobody."
        return _said(rung, "page", reason, now_s)
    if held and now_s < due_s:
        reason = (
            f"{lead}. Silence is a third state, neither healthy nor proven broken: page, and see "
            f"after {policy.silent_wait_s:g} s whether its job still ends steps."
        )
        return _said(rung, "page", reason, now_s, recheck_at=due_s)
    if held and context.job_progressing is False:
        reason = f"{lead}, and for its job {incident.job} no step ends any more."
        return _isolation("node silent and job stopped", incident, context, reason, "now", now_s)
    reason = (
        f"{lead}. Silence is a third state, neither healthy nor proven broken: page, isolate "
        "nobody."
    )
    return _said(rung, "page", reason, now_s)


def _stood_before(incident: Incident, context: Context) -> bool:
    """Whether the silence cannot be why the job stands still: its code failed, or it had ended."""
    since_s = min((line.onset for line in incident.evidence), default=incident.opened_at)
    still_s = context.job_still_s
    return context.job_failed or (still_s is not None and still_s < since_s)


def _slow(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """A slow job: with evidence on one or two nodes they go, else it is looked into."""
    symptom = _step_time(incident)
    assert symptom is not None
    lead = f"The job became slow: {_clause(symptom.text)}"
    suspects = _suspect_nodes(incident)
    node_lines = _lines_on(incident, suspects)
    if not suspects or not node_lines:
        return _slow_alone(incident, symptom, policy, now_s)
    if len(suspects) > policy.suspects_max or incident.confidence < policy.confidence_min:
        reason = (
            f"{lead}, but {len(suspects)} nodes stand out at a confidence of "
            f"{incident.confidence:.2f} (at most {policy.suspects_max} nodes and at least "
            f"{policy.confidence_min:g} are needed to isolate): run network and GPU checks on them."
        )
        return _said("slow job with unclear evidence", "diagnose", reason, now_s, suspects)
    if context.blind_share > policy.blind_share_max:
        reason = (
            f"{lead}, but {100.0 * context.blind_share:.0f} % of the nodes are "
            "not heard, so that the contrast with the peers proves nothing: check the suspects."
        )
        return _said("slow job with unclear evidence", "diagnose", reason, now_s, suspects)
    if context.job_progressing is not False and context.replacements == 0:
        reason = (
            f"{lead} through {', '.join(suspects)}, but the job still "
            "progresses and no replacement is free: page instead of stopping it."
        )
        return _said("slow job with node evidence", "page", reason, now_s)
    stopped = context.job_progressing is False
    when: When = "now" if stopped else "at_checkpoint"
    how = "the job stands still" if stopped else "the job progresses, so at its next checkpoint"
    reason = (
        f"{lead}, and on {', '.join(suspects)}: {_joined(node_lines)} "
        f"(confidence {incident.confidence:.2f}); {how}."
    )
    rung = "slow job with node evidence"
    return _isolation(rung, incident, context, reason, when, now_s)


def _slow_alone(
    incident: Incident, symptom: Evidence, policy: PolicySettings, now_s: float
) -> Verdict:
    due_s = incident.opened_at + policy.evidence_wait_s
    rung = "slow job without suspect"
    lead = f"The job became slow: {_clause(symptom.text)}"
    if now_s < due_s:
        reason = (
            f"{lead}, but no node stands out: most slow jobs are slow through "
            f"their own code. Wait {policy.evidence_wait_s:g} s for evidence."
        )
        return _said(rung, "none", reason, now_s, recheck_at=due_s)
    reason = (
        f"{lead}, and after {policy.evidence_wait_s:g} s no node stands out: "
        "profile the job, compare its stacks, and check the network in pairs."
    )
    return _said(rung, "diagnose", reason, now_s)


def _flap(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """A link that fell usually comes back: the first time is free."""
    count = f"{incident.network_events} of {policy.network_events} in {policy.network_window_s:g} s"
    rung = "network event"
    if incident.network_events < policy.network_events:
        reason = f"A link fell: {_first_text(incident)}; {count}. Wait for it to recover by itself."
        return _said(rung, "none", reason, now_s)
    reason = f"A link does not stay up: {_first_text(incident)}; {count}."
    return _isolation(rung, incident, context, reason, "now", now_s)


def _no_suspect(incident: Incident, now_s: float) -> Verdict:
    reason = (
        f"The job failed: {_first_text(incident)}, and no node is under suspicion. "
        "Run the stop-time checks; where they pass retry, roll back, replay in two phases."
    )
    return _said("crash or NaN without suspect", "diagnose", reason, now_s)


def _same_place(incident: Incident, now_s: float) -> Verdict:
    reason = (
        f"An application error came back at one place: {_first_text(incident)}. The job's code or "
        "this GPU: run the GPU diagnostics on it when its node is free."
    )
    nodes = _suspect_nodes(incident)
    return _said("error at one place", "diagnose", reason, now_s, nodes)


def _lost(incident: Incident, context: Context, policy: PolicySettings, now_s: float) -> Verdict:
    """A GPU that is no longer shown, and a job that stands still: two witnesses."""
    nodes = _suspect_nodes(incident)
    few = 0 < len(nodes) <= policy.suspects_max and context.blind_share <= policy.blind_share_max
    if not few or not set(nodes) <= set(context.job_nodes):
        return _uncertain(incident, now_s)
    reason = f"{_first_text(incident)}, and for its job {incident.job} no step ends any more."
    return _isolation("GPU lost and job stopped", incident, context, reason, "now", now_s)


def _uncertain(incident: Incident, now_s: float) -> Verdict:
    nodes = ", ".join(_suspect_nodes(incident)) or "no single node"
    reason = (
        f"A sign of {incident.kind} on {nodes} that one event does not prove: "
        f"{_first_text(incident)}. Page; drain it when the job allows."
    )
    return _said("uncertain machine fault", "page", reason, now_s)


def _isolation(
    rung: str, incident: Incident, context: Context, reason: str, when: When, now_s: float
) -> Verdict:
    """Isolate the suspects, with a restart where they run a job.

    Never a protected node, nor one that no listing names: its label may be anything, a pod's name
    for example, and an order to the scheduler would hit nobody or another.
    """
    suspects = _suspect_nodes(incident)
    guarded = sorted(set(suspects) & set(context.protected))
    unlisted = sorted(set(suspects) & set(context.unlisted))
    targets = [node for node in suspects if node not in guarded and node not in unlisted]
    if guarded:
        reason += f" {', '.join(guarded)} is protected and stays: page its owner."
    if unlisted:
        reason += f" No listing knows {', '.join(unlisted)}: page, so that somebody finds out who."
    if not targets:
        return _said(rung, "page", reason, now_s)
    action: Action = "isolate_and_restart" if incident.job else "isolate"
    return Verdict(action, reason, targets, when, now_s, rung)


def _said(
    rung: str,
    action: Action,
    reason: str,
    now_s: float,
    targets: Sequence[str] = (),
    recheck_at: float | None = None,
) -> Verdict:
    return Verdict(action, reason, sorted(targets), "now", now_s, rung, recheck_at)


def _suspect_nodes(incident: Incident) -> list[str]:
    return sorted({suspect.node for suspect in incident.suspects if suspect.node})


def _step_time(incident: Incident) -> Evidence | None:
    """The evidence that the job itself is slower than before."""
    return next((line for line in incident.evidence if line.metric == STEP_TIME), None)


def _lines_on(incident: Incident, nodes: Sequence[str]) -> list[Evidence]:
    """What the nodes tell of themselves, then what others tell of them."""
    own = [line for line in incident.evidence if line.node in nodes]
    others = {f"peer:{node}" for node in nodes}
    return own + [line for line in incident.evidence if line.entity in others]


def _joined(lines: Sequence[Evidence]) -> str:
    """The first two lines of evidence; the rest stand in the incident."""
    return "; ".join(line.text for line in lines[:2])


def _first_text(incident: Incident) -> str:
    """The text of the evidence that speaks for the incident's suspects, else of its first."""
    on_suspects = _lines_on(incident, _suspect_nodes(incident)) or incident.evidence
    return _clause(on_suspects[0].text) if on_suspects else "no evidence is kept"


def _clause(text: str) -> str:
    """`text` as part of a sentence, without its full stop."""
    return text.strip().rstrip(".")
