"""What a story says now: worked out from its faults and the open evidence near them."""

from __future__ import annotations

from typing import Any

from detectors.base import View
from detectors.naming import CONFIDENCE_MAX, REFLECTED, told
from detectors.shelf import Shelf
from detectors.story import (
    JOB_KINDS,
    Placed,
    Story,
    Told,
    began_together,
    chosen,
    evidence_of,
    ordered,
)
from telemetry.findings import Finding, Suspect, six_digits
from telemetry.records import Severity
from telemetry.settings import EngineSettings

_SEVERITY_ORDER: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}
_FLAP_CONFIDENCE = 0.3  # of each link-down event
_FAULT_CONFIDENCE = 0.6  # of a fault that is not certain


class Retelling:
    """Reads stories and the shelf; changes only what a story shows."""

    def __init__(self, settings: EngineSettings, shelf: Shelf) -> None:
        self._settings = settings.correlation
        self._echo_s = settings.critical.echo_s
        self._shelf = shelf

    def changes(self, story: Story, view: View, dead: frozenset[str]) -> dict[str, Any]:
        """The incident's fields that differ from its newest revision.

        dead  nodes of its jobs with a certain fault or without a sign of life
        """
        evidence = self._evidence(story, view)
        tale = self._told(story, evidence, view, dead)
        if story.incident.suspects and not tale.suspects and not tale.certain:
            tale = self._kept(story, tale)
        story.holding = tale.holding
        self._show(story, evidence, tale)
        fields = {
            "kind": tale.kind, "cause": tale.cause, "severity": tale.severity,
            "confidence": tale.confidence, "suspects": tale.suspects, "certain": tale.certain,
            "job": _job(story), "network_events": _network_events(story),
            "evidence": evidence_of(story.shown.values()),
            "findings": [f.id for f in sorted(story.shown.values(), key=lambda f: (f.onset, f.id))],
        }  # fmt: skip
        return {k: v for k, v in fields.items() if getattr(story.incident, k) != v}

    def _evidence(self, story: Story, view: View) -> list[Placed]:
        """Open evidence near the story's faults, each once, in the order of arrival by fault."""
        near: dict[str, Placed] = {}
        for fault in _open_or_all(ordered(story.faults.values())):
            finding = fault.finding
            rules = self._settings
            slow = finding.kind == "job_slow"  # what is to accuse a node began with the slowdown
            for placed in self._of_fault(fault, view):
                if slow:
                    fits = began_together(finding, placed.finding, rules)
                else:
                    fits = abs(placed.finding.onset - finding.onset) <= rules.join_s
                if fits:
                    near.setdefault(placed.finding.id, placed)
            if fault.job and (finding.certain or finding.kind == "node_silent"):
                for placed in self._shelf.of_job(fault.job):
                    # A silence proves no more than what its peers miss.
                    echo = finding.certain or placed.finding.metric in REFLECTED
                    since_s = placed.finding.onset - finding.onset
                    if echo and -placed.finding.onset_resolution_s <= since_s <= self._echo_s:
                        near.setdefault(placed.finding.id, placed)
        return list(near.values())

    def _of_fault(self, fault: Placed, view: View) -> list[Placed]:
        """Evidence that may belong to a fault: of its node, or of a slow job and its leaves.

        Of a job that failed or stands still it is what is said of the job itself.
        """
        if fault.finding.node and fault.finding.kind != "job_slow":
            node = fault.finding.node
            return [*self._shelf.of_node(node), *self._shelf.about_node(node)]
        of_job = self._shelf.of_job(fault.job) if fault.job else []
        if fault.finding.kind != "job_slow":
            return [placed for placed in of_job if not placed.finding.node]
        mates = {
            node: None
            for leaf in dict.fromkeys(placed.leaf for placed in of_job if placed.leaf)
            for node in view.leaf_nodes(leaf)
        }
        return [*of_job, *(p for node in mates for p in self._shelf.of_node(node))]

    def _told(
        self, story: Story, evidence: list[Placed], view: View, dead: frozenset[str]
    ) -> Told:  # fmt: skip
        of_leaf = story.incident.scope.startswith("leaf:")
        certain = [
            f
            for f in story.machine_faults()
            # A link that keeps falling is proof, but of which end, where its neighbours' fall too?
            if f.finding.certain and not (of_leaf and f.finding.kind == "nic_flap")
        ]
        if certain:
            return _certain(certain)
        if of_leaf:
            return _leaf(story, view)
        slow = _open_or_all(story.of_kind("job_slow"))
        if slow:
            faults = [
                f
                for f in story.machine_faults()
                if f.finding.state != "clear"
                and any(began_together(s.finding, f.finding, self._settings) for s in slow)
            ]
            chronic = self._of_fault(slow[0], view)
            ill = [*evidence, *faults]
            return told(slow[0].finding, ill, chronic, view, self._settings, dead)
        return _plain(story)

    def _kept(self, story: Story, tale: Told) -> Told:
        """Suspects once named stay named when their evidence ends with nothing in its place."""
        last = story.incident
        if tale.kind != story.root_kind:
            return tale
        return Told(
            kind=last.kind, cause=last.cause, severity=last.severity, confidence=last.confidence,
            suspects=last.suspects, certain=last.certain,
        )  # fmt: skip

    def _show(self, story: Story, evidence: list[Placed], tale: Told) -> None:
        ranked: dict[str, tuple[int, Finding]] = {
            key: (2, finding) for key, finding in story.shown.items()
        }
        holding = set(tale.holding)
        for placed in evidence:
            rank = 1 if placed.finding.id in holding else 2
            ranked[placed.finding.id] = (rank, placed.finding)
        for key, fault in story.faults.items():
            ranked[key] = (0, fault.finding)
        story.shown = chosen(list(ranked.values()), self._settings.evidence_max)


def _certain(faults: list[Placed]) -> Told:
    """The first certain fault is the root; other nodes with one of their own are suspects too."""
    suspects: dict[str, Suspect] = {}
    for fault in faults:
        finding = fault.finding
        suspects.setdefault(finding.node, Suspect(finding.node, finding.entity, CONFIDENCE_MAX))
    root = faults[0].finding
    return Told(
        kind=root.kind, cause=root.cause, severity="critical", confidence=CONFIDENCE_MAX,
        suspects=[suspects[node] for node in sorted(suspects)], certain=True,
    )  # fmt: skip


def _leaf(story: Story, view: View) -> Told:
    leaf = story.incident.scope.removeprefix("leaf:")
    nodes = {fault.finding.node for fault in story.faults.values()}
    share = six_digits(min(1.0, len(nodes) / max(1, len(view.leaf_nodes(leaf)))))
    if all(fault.finding.kind == "telemetry_gap" for fault in story.faults.values()):
        # Their jobs go on: what is broken is how we hear of them.
        return Told(
            kind="telemetry_gap", cause="telemetry", severity="warning",
            confidence=max(0.5, share), suspects=[],
        )  # fmt: skip
    return Told(
        kind="fabric", cause="network", severity="critical", confidence=max(0.5, share),
        suspects=[Suspect("", f"leaf:{leaf}", share)],
    )  # fmt: skip


def _plain(story: Story) -> Told:
    """A story without certainty or a slow job: its gravest fault speaks for it."""
    faults = ordered(story.faults.values())
    # A job that stands still is the symptom; whatever else the story holds is nearer to the cause.
    faults = [f for f in faults if f.finding.kind != "job_hang"] or faults
    # A crash in the job's own code is over in a moment and explains what is quiet after it.
    crashes = [f for f in faults if f.finding.kind == "user_error"]
    if crashes:
        return Told(
            kind="user_error", cause=crashes[0].finding.cause, severity="critical",
            confidence=_FAULT_CONFIDENCE, suspects=[],
        )  # fmt: skip
    root = min(_open_or_all(faults), key=lambda f: _SEVERITY_ORDER[f.finding.severity]).finding
    events = _network_events(story)
    confidence = min(0.9, _FLAP_CONFIDENCE * events) if events else _FAULT_CONFIDENCE
    named = {
        f.finding.node: f.finding
        # The first one names the part, before those that are over: their parts may have new names.
        for f in sorted(reversed(faults), key=lambda f: f.finding.state != "clear")
        if f.finding.node and f.finding.kind not in JOB_KINDS
    }
    return Told(
        kind=root.kind, cause=root.cause, severity=root.severity,
        confidence=six_digits(confidence),
        suspects=[
            Suspect(node, named[node].entity, six_digits(confidence)) for node in sorted(named)
        ],
    )  # fmt: skip


def _open_or_all(faults: list[Placed]) -> list[Placed]:
    """Those that still hold; where none does, what the story was about."""
    return [fault for fault in faults if fault.finding.state != "clear"] or faults


def _job(story: Story) -> str:
    """The one job that the faults hit; "" for none or several."""
    jobs = story.jobs
    return next(iter(jobs)) if len(jobs) == 1 else ""


def _network_events(story: Story) -> int:
    flaps = story.of_kind("nic_flap")
    return max((fault.finding.events for fault in flaps), default=0)
