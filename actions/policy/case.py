"""One incident before the ladder: what the rungs ask it, and the words that they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from telemetry.attempts import Attempt, FinalCause, Step
from telemetry.findings import Action, Context, Evidence, Incident, Verdict, When
from telemetry.settings import PolicySettings

STEP_TIME = "step_time_s"
STANDSTILL = frozenset({"progress", "idle"})  # detectors that see a job stand still


@dataclass(frozen=True, slots=True)
class Case:
    """What a rung reads; `now_s` is the log's."""

    incident: Incident
    context: Context
    policy: PolicySettings
    now_s: float

    @property
    def suspects(self) -> list[str]:
        """The nodes under suspicion, sorted."""
        return sorted({suspect.node for suspect in self.incident.suspects if suspect.node})

    @property
    def step_time(self) -> Evidence | None:
        """The evidence that the job itself is slower than before."""
        return next((line for line in self.incident.evidence if line.metric == STEP_TIME), None)

    @property
    def node_lines(self) -> list[Evidence]:
        """What the suspects tell of themselves, then what others tell of them."""
        nodes = self.suspects
        own = [line for line in self.incident.evidence if line.node in nodes]
        others = {f"peer:{node}" for node in nodes}
        return own + [line for line in self.incident.evidence if line.entity in others]

    @property
    def first_text(self) -> str:
        """The text of the evidence that speaks for the suspects, else of the first."""
        lines = self.node_lines or self.incident.evidence
        return clause(lines[0].text) if lines else "no evidence is kept"

    @property
    def attempts(self) -> list[Attempt]:
        """What was tried for the job since something worked last, within the window."""
        since_s = self.now_s - self.policy.attempts_window_s
        recent = [tried for tried in self.context.attempts if tried.at >= since_s]
        worked = [place for place, tried in enumerate(recent) if tried.worked]
        return recent[worked[-1] + 1 :] if worked else recent

    def answer(self, *steps: Step) -> Attempt | None:
        """The newest of these steps of which the nodes that it found, if any, are known."""
        answers = [
            tried
            for tried in self.attempts
            if tried.step in steps and tried.incident == self.incident.id
            and tried.nodes is not None
        ]  # fmt: skip
        return answers[-1] if answers else None

    def failed(self, *steps: Step) -> Attempt | None:
        """The newest of these steps that was made, and after which the job failed again."""
        failures = [tried for tried in self.attempts if tried.step in steps and self._failed(tried)]
        return failures[-1] if failures else None

    def _failed(self, tried: Attempt) -> bool:
        again = tried.incident != self.incident.id and self.incident.opened_at >= tried.at
        return tried.worked is False or (tried.told and tried.worked is None and again)

    def evicted_before(self) -> Attempt | None:
        """The newest eviction for another incident of the job before this one opened."""
        evictions = [
            tried
            for tried in self.attempts
            if tried.step == "eviction" and tried.incident != self.incident.id
            and self.incident.opened_at >= tried.at
        ]  # fmt: skip
        return evictions[-1] if evictions else None


def isolation(
    case: Case,
    rung: str,
    reason: str,
    when: When = "now",
    nodes: Iterable[str] | None = None,
    step: Step = "eviction",
) -> Verdict:
    """Isolate the nodes (the suspects), with a restart where they run a job.

    Never a protected node, nor one that no listing names: its label may be anything, a pod's name
    for example, and an order to the scheduler would hit nobody or another.
    """
    wanted = case.suspects if nodes is None else sorted(set(nodes))
    guarded = sorted(set(wanted) & set(case.context.protected))
    unlisted = sorted(set(wanted) & set(case.context.unlisted))
    targets = [node for node in wanted if node not in guarded and node not in unlisted]
    if guarded:
        reason += f" {', '.join(guarded)} is protected and stays: page its owner."
    if unlisted:
        reason += f" No listing knows {', '.join(unlisted)}: page, so that somebody finds out who."
    if not targets:
        return said(case, rung, "page", reason)
    restarts = case.incident.job and step != "quarantine"
    action: Action = "isolate_and_restart" if restarts else "isolate"
    return Verdict(action, reason, targets, when, case.now_s, rung, None, step)


def said(
    case: Case,
    rung: str,
    action: Action,
    reason: str,
    targets: Sequence[str] = (),
    recheck_at: float | None = None,
    step: Step | None = None,
    final_cause: FinalCause | None = None,
) -> Verdict:
    """A verdict that isolates nobody."""
    return Verdict(
        action, reason, sorted(targets), "now", case.now_s, rung, recheck_at, step, final_cause
    )


def clause(text: str) -> str:
    """`text` as part of a sentence, without its full stop."""
    return text.strip().rstrip(".")


def listed(nodes: Sequence[str], shown: int = 8) -> str:
    """The nodes as text; of many the first ones, and how many more there are."""
    more = f" and {len(nodes) - shown} more" if len(nodes) > shown else ""
    return ", ".join(nodes[:shown]) + more


def counted(number: int, one: str) -> str:
    """`number` and its noun: "1 node", "2 nodes"."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
