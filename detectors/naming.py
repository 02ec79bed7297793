"""Who slows a job: pure, from its step time and the evidence on its nodes.

A node is named by evidence of its own (an outlier, a slow rank, a kernel event, a link flap), and
only where its leaf mates and the rest of the job do not suffer from the same metric. What other
nodes tell of it (a time-out that names its peer) counts once, and only from at least
max(3, 10 % of the job) of them: one node that accuses another may itself be the ill one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from detectors.base import View
from detectors.story import Placed, Told, is_hearsay, is_machine_fault, told_of
from detectors.zscore import NETWORK_KINDS
from telemetry.findings import Finding, Kind, Suspect, six_digits
from telemetry.metrics import BY_NAME
from telemetry.settings import CorrelationSettings

# What explains comes before what merely follows from it.
EXPLAINS: tuple[Kind, ...] = (
    "gpu_lost", "gpu_memory", "nvlink_fault", "nic_flap", "nic_fault", "nic_congested",
    "gpu_thermal", "pcie_degraded", "storage", "gpu_fault", "gpu_power", "host", "gpu_slow",
)  # fmt: skip
_ORDER = {kind: place for place, kind in enumerate(EXPLAINS)}
HEAT = frozenset(name for name, row in BY_NAME.items() if row.unit == "celsius")
SYMPTOMS: frozenset[Kind] = frozenset({"gpu_slow", "gpu_power", "host"})
# A healthy end of a connection shows these when the other end or the way is ill.
REFLECTED = frozenset(
    {"nic_cnp_handled_packets_total", "nic_ack_timeouts_total",
     "nic_out_of_sequence_packets_total", "nic_packet_sequence_errors_total"}
)  # fmt: skip

# What is left of the doubt after each independent kind of evidence.
STEP_TIME_DOUBT, NAMER_DOUBT, SUPPORT_DOUBT = 0.7, 0.5, 0.8
CONFIDENCE_MAX = 0.99
OTHERS = "others"  # who speaks where several nodes tell of one
SUSPECTS_SURE = 2  # more hosts than this are no longer one host's fault
CROWD_CONFIDENCE_MAX = 0.49
OUTLIERS = frozenset({"zscore", "zscore_pooled", "robust_peers"})
SIGMAS_FULL = 6.0  # an outlier this far out counts in full, a nearer one in part
RUNNER_UP_SHARE = 0.6  # a node with less of the leader's strength is noise beside it


class Named(msgspec.Struct, frozen=True):
    """One node's case: the findings that accuse it, and their strength by kind."""

    node: str
    strength: float
    confidence: float
    namers: list[Finding]


def names(finding: Finding) -> bool:
    """Whether the finding accuses its own node; application errors and echoes accuse nobody.

    An outlier must also differ by the metric's smallest effect: a peer that always runs two
    degrees warmer is no culprit.
    """
    if not finding.node or finding.kind == "telemetry_gap" or is_hearsay(finding):
        return False
    if finding.role == "fault":
        return is_machine_fault(finding)
    metric = BY_NAME.get(finding.metric)
    # An outlier among its peers is the node's own, also where its software is to blame.
    own = finding.detector in OUTLIERS or finding.cause in ("hardware", "network")
    if finding.detector == "should_be_zero" or not own:
        return False
    if metric is None or finding.observed is None or finding.expected is None:
        return True
    return abs(finding.observed - finding.expected) >= metric.effect_min * (1.0 - 1e-9)


def told(
    slow: Finding,
    evidence: Sequence[Placed],
    chronic: Sequence[Placed],
    view: View,
    settings: CorrelationSettings,
    dead: frozenset[str] = frozenset(),
) -> Told:
    """Kind, cause, suspects and confidence of a slow job.

    evidence  open findings that began near the slow onset, on the job's nodes and on nodes that
              share a leaf with them
    chronic   the same whenever they began: a mate that suffered before is a mate that suffers
    dead      nodes of the job with a certain fault or without a sign of life: what their peers
              reflect accuses no peer
    """
    job_nodes = set(view.job_nodes(slow.job, slow.onset))
    lies = {
        _of(p)
        for p in [*evidence, *chronic]
        if p.finding.kind == "telemetry_gap" and p.finding.metric in BY_NAME
    }
    evidence = [p for p in evidence if _of(p) not in lies]
    chronic = [p for p in chronic if _of(p) not in lies]
    sick = _sick_nodes([*evidence, *chronic])
    own = _slowing([p for p in evidence if p.job == slow.job and names(p.finding)])
    shared = _shared_leaves(evidence, sick, job_nodes, view, settings)
    common = {m for m, nodes in sick.items() if _is_common(nodes, job_nodes, settings)}
    new = {m for m, n in _sick_nodes(evidence).items() if _is_common(n, job_nodes, settings)}
    ill = {leaf for leaf, metric in shared if metric not in REFLECTED}
    if ill and not _spread(shared, sick, common):
        return _fabric(ill, shared, sick, view)
    accusing = [
        p.finding
        for p in own
        if p.finding.metric not in common
        and (p.leaf, p.finding.metric) not in shared
        and not (p.leaf in ill and p.finding.kind in NETWORK_KINDS)
    ]
    direct = [f for f in accusing if f.metric not in REFLECTED]
    direct += _from_others(evidence, slow.job, job_nodes, settings)
    if not direct and dead:
        accusing = [f for f in accusing if f.node in dead]
    if direct or accusing:
        return _suspected(direct or accusing, evidence)
    if new - REFLECTED:
        return _fleet(new, sick, job_nodes)
    if shared:
        return _fabric({leaf for leaf, _ in shared}, shared, sick, view)
    if new:
        return _fleet(new, sick, job_nodes)
    return Told(
        kind="job_slow", cause="unknown", severity="warning",
        confidence=six_digits(1.0 - STEP_TIME_DOUBT), suspects=[],
    )  # fmt: skip


def _from_others(
    evidence: Sequence[Placed], job: str, job_nodes: set[str], settings: CorrelationSettings
) -> list[Finding]:
    """What enough nodes of the job tell of one of its nodes, as one finding on that node each."""
    of: dict[str, dict[str, Finding]] = {}
    for placed in evidence:
        finding = placed.finding
        other = told_of(finding)
        telling = placed.job == job and finding.node in job_nodes and other in job_nodes
        if telling and finding.cause in ("hardware", "network"):
            of.setdefault(other, {}).setdefault(finding.node, finding)
    share = math.ceil(settings.others_share * len(job_nodes) - 1e-9)
    least = max(settings.others_nodes_min, share)
    return [
        msgspec.structs.replace(
            min(tellers.values(), key=lambda f: (f.onset, f.id)), detector=OTHERS, node=other
        )
        for other, tellers in sorted(of.items())
        if len(tellers) >= least
    ]


def _of(placed: Placed) -> tuple[str, str]:
    """Node and metric: what a collector's fault makes worthless."""
    return placed.finding.node, placed.finding.metric


def _sick_nodes(evidence: Iterable[Placed]) -> dict[str, set[str]]:
    """metric -> nodes that suffer from it; slow ranks and events are no metric."""
    sick: dict[str, set[str]] = {}
    for placed in evidence:
        finding = placed.finding
        if finding.node and finding.metric in BY_NAME and not is_hearsay(finding):
            sick.setdefault(finding.metric, set()).add(finding.node)
    return sick


def _slowing(own: Sequence[Placed]) -> list[Placed]:
    """Without nodes that are merely warm: heat slows nobody who does not throttle.

    A temperature counts where its node shows anything else: a low clock, a violation, a slow rank.
    """
    slowed = {p.finding.node for p in own if p.finding.metric not in HEAT}
    return [p for p in own if p.finding.node in slowed]


def _is_common(nodes: set[str], job_nodes: set[str], settings: CorrelationSettings) -> bool:
    """Whether so many of the job's nodes suffer that nobody stands out."""
    size = len(job_nodes)
    return size > 1 and len(nodes & job_nodes) >= needed(size, settings.everybody_share, settings)


def needed(size: int, share: float, settings: CorrelationSettings) -> int:
    """How many of `size` mates make it a matter of all: never fewer than all of a small group."""
    return max(min(settings.leaf_nodes_min, size), math.ceil(share * size - 1e-9))


def _shared_leaves(
    evidence: Sequence[Placed],
    sick: dict[str, set[str]],
    job_nodes: set[str],
    view: View,
    settings: CorrelationSettings,
) -> set[tuple[str, str]]:
    """(leaf, network metric) where enough of those behind the leaf suffer."""
    pairs = {
        (p.leaf, p.finding.metric)
        for p in evidence
        if p.leaf and p.finding.kind in NETWORK_KINDS and p.finding.metric in sick
    }
    shared = set()
    for leaf, metric in sorted(pairs):
        mates = set(view.leaf_nodes(leaf))
        here = len(mates & job_nodes)
        least = needed(here, settings.leaf_share, settings) if here > 1 else settings.leaf_nodes_min
        if len(mates & sick[metric]) >= least:
            shared.add((leaf, metric))
    return shared


def _spread(shared: set[tuple[str, str]], sick: dict[str, set[str]], common: set[str]) -> bool:
    """Whether the job suffers as a whole and not through one leaf."""
    return any(
        len({leaf for leaf, m in shared if m == metric}) > 1 for metric in common & set(sick)
    )


def _fabric(
    leaves: set[str], shared: set[tuple[str, str]], sick: dict[str, set[str]], view: View
) -> Told:
    suspects = []
    for leaf in sorted(leaves):
        mates = set(view.leaf_nodes(leaf))
        worst = max(len(mates & sick[metric]) for name, metric in shared if name == leaf)
        share = worst / max(1, len(mates))
        suspects.append(Suspect(node="", entity=f"leaf:{leaf}", score=six_digits(min(1.0, share))))
    confidence = 1.0 - STEP_TIME_DOUBT * NAMER_DOUBT * SUPPORT_DOUBT
    return Told(
        kind="fabric", cause="network", severity="critical", suspects=suspects,
        confidence=six_digits(confidence),
    )  # fmt: skip


def _fleet(common: set[str], sick: dict[str, set[str]], job_nodes: set[str]) -> Told:
    share = max(len(sick[metric] & job_nodes) for metric in common) / len(job_nodes)
    return Told(
        kind="fleet_shift", cause="common_mode", severity="warning", suspects=[],
        confidence=six_digits(min(CONFIDENCE_MAX, 0.5 + share / 2.0)),
    )  # fmt: skip


def _suspected(accusing: Sequence[Finding], evidence: Sequence[Placed]) -> Told:
    """The strongest node, and those that come near it."""
    by_node: dict[str, list[Finding]] = {}
    for finding in accusing:
        by_node.setdefault(finding.node, []).append(finding)
    cases = [_case(node, found, evidence) for node, found in by_node.items()]
    cases.sort(key=lambda case: (-case.strength, case.node))
    kept = [case for case in cases if case.strength >= RUNNER_UP_SHARE * cases[0].strength]
    leader = _explaining(kept[0].namers)
    confidence = kept[0].confidence
    if len(kept) > SUSPECTS_SURE:
        confidence = min(confidence / 2.0, CROWD_CONFIDENCE_MAX)
    return Told(
        kind=leader.kind, cause=leader.cause, severity="warning",
        confidence=six_digits(confidence),
        suspects=[
            Suspect(case.node, _part(_explaining(case.namers)), six_digits(case.confidence))
            for case in kept
        ],
        holding=[finding.id for case in kept for finding in case.namers],
    )  # fmt: skip


def _part(finding: Finding) -> str:
    """Which part of the suspect it is; other nodes see the whole only."""
    return "" if is_hearsay(finding) else finding.entity


def _case(node: str, namers: list[Finding], evidence: Sequence[Placed]) -> Named:
    weights: dict[tuple[str, Kind], float] = {}
    for finding in namers:
        source = "peers" if finding.detector in OUTLIERS else finding.detector
        key = (source, finding.kind)  # who compares with the peers says one thing, in any form
        weights[key] = max(weights.get(key, 0.0), _weight(finding))
    support = {
        p.finding.metric
        for p in evidence
        if p.finding.node == node and p.finding.detector == "should_be_zero"
    }
    doubt = STEP_TIME_DOUBT * NAMER_DOUBT ** len(weights) * SUPPORT_DOUBT ** min(3, len(support))
    confidence = min(CONFIDENCE_MAX, 1.0 - doubt)
    return Named(node, sum(weights.values()), confidence, namers)


def _weight(finding: Finding) -> float:
    if finding.detector not in OUTLIERS:
        return 1.0
    return min(1.0, finding.score / SIGMAS_FULL)


def _explaining(namers: Sequence[Finding]) -> Finding:
    """The finding that explains most: no symptom, far out, high in the order of causes."""
    return min(
        namers,
        key=lambda f: (
            f.kind in SYMPTOMS,
            -_weight(f),
            _ORDER.get(f.kind, len(_ORDER)),
            f.metric,
            f.entity,
        ),
    )
