"""Findings become incidents: one story each, roots told from echoes, a leaf from its nodes.

Evidence never opens an incident. A fault joins the open story that it belongs to, else it opens one
of its own; `Incident.id` is fixed at the opening. What a story says is worked out anew from its
faults and the open evidence near them whenever one of those changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from detectors import identity
from detectors.base import View
from detectors.naming import needed
from detectors.retelling import Retelling
from detectors.shelf import Shelf
from detectors.story import (
    JOB_KINDS,
    UNDECIDED,
    Placed,
    Story,
    began_together,
    is_hearsay,
    is_machine_fault,
    subject_of,
    told_of,
)
from telemetry.findings import Finding, Incident, Kind, stable_id
from telemetry.settings import EngineSettings

# Faults that a leaf switch can give to all nodes behind it.
LEAF_KINDS: frozenset[Kind] = frozenset({"node_silent", "nic_flap", "nic_fault", "telemetry_gap"})
# Faults after which a job ends no more steps, though none of them is certain by itself.
HANG_CAUSES: frozenset[Kind] = frozenset({"node_silent", "user_error", "gpu_lost", "nic_fault"})
FAULTS_MAX = 256  # faults kept of one story; more of them change nothing about it


class CorrelatorState(msgspec.Struct):
    """What a snapshot keeps: stories in the order of their opening, and open evidence."""

    stories: list[Story]
    evidence: list[Placed]
    dropped: int


class Correlator:
    """The engine hands every finding in and every decided incident back (`decided`)."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings.correlation
        self._cluster = settings.cluster
        self._echo_s = settings.critical.echo_s
        self._shelf = Shelf(settings.correlation.findings_max)
        self._retelling = Retelling(settings, self._shelf)
        self._stories: dict[str, Story] = {}
        self.dropped = 0

    def take(self, findings: Sequence[Finding], view: View, now_s: float) -> list[Incident]:
        """The incidents that these findings open or change, each in its next revision.

        What is heard together has no order: proven faults come first, then by onset and name.
        """
        touched: dict[str, None] = {}
        for finding in sorted(findings, key=_precedence) if len(findings) > 1 else findings:
            placed = identity.placed(finding, view)
            if finding.role == "evidence" or is_hearsay(finding):
                self._shelf.put(placed)
                touched.update(dict.fromkeys(self._near(placed)))
            else:
                touched.update(dict.fromkeys(self._fault(placed, now_s)))
        touched.update(dict.fromkeys(self._leaves(touched, view, now_s)))
        changes = {story_id: self._changes(story_id, view) for story_id in touched}
        for story_id in self._twins(changes, now_s):
            changes[story_id] = self._changes(story_id, view)
        return [
            said for story_id, change in changes.items() if (said := self._say(story_id, change))
        ]

    def advance(self, now_s: float, view: View) -> list[Incident]:
        """Close what was quiet for `clear_s`; forget what can no longer reopen."""
        closed: list[Incident] = []
        for story in list(self._stories.values()):
            closed_s = story.incident.closed_at
            if closed_s is not None:
                if now_s - closed_s > self._settings.reopen_s:
                    del self._stories[story.id]
                continue
            self._end_renamed(story, view, now_s)
            if self._is_over(story, now_s):
                closed.append(_revision(story, closed_at=now_s))
        return closed

    def _end_renamed(self, story: Story, view: View, now_s: float) -> None:
        """Faults under a name that means another part now: nobody will ever clear them."""
        for key, fault in story.faults.items():
            if identity.is_over(fault, view):
                finding = msgspec.structs.replace(fault.finding, state="clear")
                story.faults[key] = msgspec.structs.replace(fault, finding=finding)
                self._note_quiet(story, now_s)

    def decided(self, incident: Incident) -> None:
        """Keep what the ladder added, so that the next revision carries it on."""
        story = self._stories.get(incident.id)
        if story is not None:
            story.incident = incident

    def incidents(self) -> list[Incident]:
        """The open ones, in the order of their opening."""
        return [story.incident for story in self._stories.values() if story.is_open]

    # -- where a finding belongs

    def _near(self, placed: Placed) -> list[str]:
        """Open stories whose telling this evidence may change."""
        finding = placed.finding
        near = []
        for story in self._stories.values():
            if not story.is_open:
                continue
            subjects = {finding.node, told_of(finding)} - {""}
            same_node = any(f.finding.node in subjects for f in story.faults.values())
            same_leaf = bool(placed.leaf) and placed.leaf in story.leaves
            same_job = bool(placed.job) and placed.job in story.jobs
            if same_node or same_job or same_leaf or finding.id in story.shown:
                near.append(story.id)
        return near

    def _fault(self, placed: Placed, now_s: float) -> list[str]:
        """Put a fault where it belongs; the ids of the stories that it changes."""
        finding = placed.finding
        known = [s for s in self._stories.values() if finding.id in s.faults and not s.merged]
        if known:
            for story in known:
                story.faults[finding.id] = identity.again(story.faults[finding.id], placed)
                self._note_quiet(story, now_s)
            return [story.id for story in known]
        if finding.state == "clear":
            return []
        renamed = [s.id for s in self._stories.values() if s.is_open and identity.rename(s, placed)]
        home = self._home(placed) or self._story(_scope(finding), finding.kind, placed, now_s)
        if home is None:
            self.dropped += 1
            return []
        if len(home.faults) < FAULTS_MAX:
            home.faults[finding.id] = placed
        home.quiet_since_s = None
        return [home.id, *renamed, *self._united(home, placed, now_s)]

    def _home(self, placed: Placed) -> Story | None:
        """The open story that a new fault belongs to, None where it is its own."""
        fitting = [
            (rank, story.incident.opened_at, story.id, story)
            for story in self._stories.values()
            if story.is_open and (rank := self._fit(story, placed)) is not None
        ]
        return min(fitting, key=lambda row: row[:3])[3] if fitting else None

    def _fit(self, story: Story, placed: Placed) -> int | None:
        """How well a fault fits a story, 0 best; None not at all."""
        finding = placed.finding
        if story.incident.scope == _scope(finding) and story.root_kind == finding.kind:
            return 0
        if any(identity.same_device(fault, placed) for fault in story.faults.values()):
            return 0
        if story.incident.scope == f"leaf:{placed.leaf}" and finding.kind in LEAF_KINDS:
            return 0
        hangs = [f for f in story.of_kind("job_hang") if f.job == placed.job]
        if any(self._explained_by(f, placed) for f in hangs):
            return 1
        if finding.kind in JOB_KINDS:
            return self._fit_job(story, placed)
        if finding.node and any(self._same_node(f.finding, finding) for f in story.faults.values()):
            return 1
        slow = [f for f in story.of_kind("job_slow") if f.job == placed.job]
        explained = any(f.finding.certain for f in story.machine_faults())
        joins = any(self._slows(f.finding, finding) for f in slow)
        if is_machine_fault(finding) and joins and not explained:
            return 2
        return None

    def _fit_job(self, story: Story, placed: Placed) -> int | None:
        """A job's fault beside a node's: a slow job joins it, a late exception is its echo."""
        finding = placed.finding
        if finding.kind == "job_hang" and self._explains_hang(story, placed):
            return 1
        for fault in story.machine_faults():
            if not placed.job or fault.job != placed.job:
                continue
            since_s = finding.onset - fault.finding.onset
            if finding.kind == "job_slow" and self._slows(finding, fault.finding):
                return 1 if fault.finding.certain else 2
            if fault.finding.certain and 0.0 <= since_s <= self._echo_s:
                return 1
        return None

    def _explained_by(self, hang: Placed, fault: Placed) -> bool:
        """Whether a fault that is heard of later is why the job stands still."""
        return _stops(fault.finding) and bool(hang.job) and self._joins(hang.finding, fault.finding)

    def _explains_hang(self, story: Story, hang: Placed) -> bool:
        """Whether the job stands still because of what the story tells: an end has one cause."""
        return bool(hang.job) and any(
            fault.job == hang.job
            and _stops(fault.finding)
            and self._joins(fault.finding, hang.finding)
            for fault in story.faults.values()
        )

    def _same_node(self, known: Finding, new: Finding) -> bool:
        """Whether two faults of one node are one story."""
        if known.node != new.node or (known.kind in JOB_KINDS and not new.certain):
            return False
        near = abs(known.onset - new.onset) <= self._echo_s
        silence = "node_silent" in (known.kind, new.kind)
        return known.kind == new.kind or near or (silence and (known.certain or new.certain))

    def _slows(self, slow: Finding, fault: Finding) -> bool:
        """Whether a node's fault may be why a job is slow; of one that is proven less is asked."""
        if fault.certain:
            return self._joins(slow, fault)
        return began_together(slow, fault, self._settings)

    def _joins(self, slow: Finding, fault: Finding) -> bool:
        return abs(slow.onset - fault.onset) <= self._settings.join_s

    # -- opening, uniting, closing

    def _story(self, scope: str, kind: Kind, root: Placed, now_s: float) -> Story | None:
        """A story of this scope and kind: one that reopens, else a new one; None where full."""
        for story in self._stories.values():
            closed_s = story.incident.closed_at
            same = story.incident.scope == scope and story.root_kind == kind
            same |= any(identity.same_device(fault, root) for fault in story.faults.values())
            same &= not story.merged
            if same and closed_s is not None and now_s - closed_s <= self._settings.reopen_s:
                story.incident = msgspec.structs.replace(story.incident, closed_at=None)
                story.reopened = True
                return story
        if len(self._stories) >= self._settings.incidents_max and not self._forgot_one():
            return None
        onset_s = root.finding.onset
        story_id = stable_id(self._cluster, scope, kind, onset_s)
        story = Story(
            root_kind=kind,
            incident=Incident(
                id=story_id, rev=-1, scope=scope,
                opened_at=now_s, closed_at=None, job=root.job, cause=root.finding.cause,
                kind=kind, severity=root.finding.severity, confidence=0.0, suspects=[],
                evidence=[], verdict=UNDECIDED, verdicts=[],
            ),
        )  # fmt: skip
        self._stories[story.id] = story
        return story

    def _forgot_one(self) -> bool:
        """Make room: the one that was closed first goes before its time."""
        closed = [s for s in self._stories.values() if not s.is_open]
        if closed:
            del self._stories[min(closed, key=lambda s: (s.incident.closed_at or 0.0, s.id)).id]
        return bool(closed)

    def _united(self, story: Story, placed: Placed, now_s: float) -> list[str]:
        """A machine fault that explains another open story of its job: the two are one."""
        if not is_machine_fault(placed.finding):
            return []
        changed: list[str] = []
        for other in list(self._stories.values()):
            if other is story or not other.is_open or other.root_kind != "job_slow":
                continue
            if any(fault.finding.certain for fault in other.machine_faults()):
                continue
            slow = [f for f in other.of_kind("job_slow") if f.job == placed.job]
            if any(self._slows(f.finding, placed.finding) for f in slow):
                changed += self._merged(story, other, now_s)
        return changed

    def _merged(self, one: Story, other: Story, now_s: float) -> list[str]:
        """The younger closes as `merged_into` the elder, which takes its faults."""
        elder, younger = sorted((one, other), key=lambda s: (s.incident.opened_at, s.id))
        self._absorb(elder, younger, now_s)
        return [elder.id, younger.id]

    def _absorb(self, elder: Story, younger: Story, now_s: float) -> None:
        for key, fault in younger.faults.items():
            if len(elder.faults) < FAULTS_MAX:
                elder.faults.setdefault(key, fault)
        elder.quiet_since_s = None
        self._note_quiet(elder, now_s)
        younger.incident = msgspec.structs.replace(
            younger.incident, closed_at=now_s, merged_into=elder.id
        )

    def _leaves(self, touched: Iterable[str], view: View, now_s: float) -> list[str]:
        """Nodes behind one leaf with the same fault at about the same time are the leaf's story."""
        changed: list[str] = []
        for story_id in list(touched):
            story = self._stories.get(story_id)
            if story is None or not story.is_open or not story.incident.scope.startswith("node:"):
                continue
            root = next(iter(story.faults.values()), None)
            if root is None or not root.leaf or root.finding.kind not in LEAF_KINDS:
                continue
            mates = [s for s in self._stories.values() if self._is_mate(s, root)]
            size = len(view.leaf_nodes(root.leaf))
            least = max(
                self._settings.leaf_nodes_min,
                needed(size, self._settings.leaf_share, self._settings),
            )
            if len({s.incident.scope for s in mates}) >= least:
                changed += self._to_leaf(root.leaf, mates, now_s)
        return changed

    def _is_mate(self, story: Story, root: Placed) -> bool:
        """Whether an open node story tells the same of a neighbour behind the same leaf."""
        if not story.is_open or not story.incident.scope.startswith("node:"):
            return False
        if any(fault.finding.kind not in LEAF_KINDS for fault in story.faults.values()):
            return False
        return any(
            fault.leaf == root.leaf
            and fault.finding.kind == root.finding.kind
            and abs(fault.finding.onset - root.finding.onset) <= self._settings.join_s
            for fault in story.faults.values()
        )

    def _to_leaf(self, leaf: str, mates: Sequence[Story], now_s: float) -> list[str]:
        roots = [fault for story in mates for fault in story.faults.values()]
        first = min(roots, key=lambda f: (f.finding.onset, f.finding.id))
        story = self._story(f"leaf:{leaf}", "fabric", first, now_s)
        if story is None:
            return []
        for mate in mates:
            self._absorb(story, mate, now_s)
        return [story.id, *(mate.id for mate in mates)]

    def _note_quiet(self, story: Story, now_s: float) -> None:
        """Remember since when nothing of the story is open."""
        if any(fault.finding.state != "clear" for fault in story.faults.values()):
            story.quiet_since_s = None
        elif story.quiet_since_s is None:
            story.quiet_since_s = now_s

    def _is_over(self, story: Story, now_s: float) -> bool:
        if story.quiet_since_s is None:
            return False
        if any(self._shelf.is_open(finding_id) for finding_id in story.holding):
            story.quiet_since_s = now_s
            return False
        return now_s - story.quiet_since_s >= self._settings.clear_s

    # -- saying it

    def _changes(self, story_id: str, view: View) -> dict[str, Any]:
        story = self._stories.get(story_id)
        if story is None or not story.is_open:
            return {}
        return self._retelling.changes(story, view, self._dead(story.jobs))

    def _dead(self, jobs: set[str]) -> frozenset[str]:
        """Nodes of the jobs that are proven ill or that nobody hears."""
        if not jobs:
            return frozenset()
        return frozenset(
            fault.finding.node
            for story in self._stories.values()
            if story.is_open
            for fault in story.faults.values()
            if fault.job in jobs and fault.finding.node and fault.finding.state != "clear"
            and (fault.finding.certain or fault.finding.kind == "node_silent")
        )  # fmt: skip

    def _twins(self, changes: dict[str, dict[str, Any]], now_s: float) -> list[str]:
        """Stories that now tell of the same leaf become one; the ids to tell anew."""
        united: list[str] = []
        for story_id, change in changes.items():
            leaves = {s.entity for s in change.get("suspects", ()) if not s.node}
            story = self._stories.get(story_id)
            if not leaves or story is None or not story.is_open:
                continue
            for other in list(self._stories.values()):
                told = changes.get(other.id, {}).get("suspects", other.incident.suspects)
                same = leaves & {s.entity for s in told if not s.node}
                if same and other is not story and other.is_open and story.is_open:
                    united += self._merged(story, other, now_s)
        return united

    def _say(self, story_id: str, changes: dict[str, Any]) -> Incident | None:
        """The next revision, None where the story has nothing new to say."""
        story = self._stories.get(story_id)
        if story is None:
            return None
        if story.merged:
            if story.incident.rev < 0:  # nobody ever heard of it
                del self._stories[story_id]
                return None
            return _revision(story)
        if not (changes or story.incident.rev < 0 or story.reopened):
            return None
        story.reopened = False
        return _revision(story, **changes)

    def snapshot(self) -> Any:
        """Stories and open evidence, as plain data."""
        stories = list(self._stories.values())
        return msgspec.to_builtins(CorrelatorState(stories, self._shelf.items(), self.dropped))

    def restore(self, state: Any) -> None:
        """Resume from `snapshot()`."""
        kept = msgspec.convert(state, CorrelatorState)
        self._stories = {story.id: story for story in kept.stories}
        self._shelf.refill(kept.evidence)
        self.dropped = kept.dropped


def _precedence(finding: Finding) -> tuple[object, ...]:
    return (
        finding.role == "evidence", not finding.certain, finding.onset, *subject_of(finding),
        finding.job, finding.id, finding.rev,
    )  # fmt: skip


def _stops(finding: Finding) -> bool:
    """Whether a job ends no more steps after this: a process that dies takes its job along."""
    died = finding.metric.startswith(("process_", "oom_"))
    return finding.certain or finding.kind in HANG_CAUSES or died


def _scope(finding: Finding) -> str:
    if finding.kind in JOB_KINDS and finding.job:
        return f"job:{finding.job}"
    if finding.node:
        return f"node:{finding.node}"
    return f"job:{finding.job}" if finding.job else "cluster"


def _revision(story: Story, **changes: Any) -> Incident:
    story.incident = msgspec.structs.replace(story.incident, rev=story.incident.rev + 1, **changes)
    return story.incident
