"""A log of two jobs made by hand, for the accounting: every number can be worked out on paper.

All times are seconds after T0. Job j1 (4 nodes):
      0       the scheduler starts it
     60-100   its first step (40 s; an ordinary one takes 10 s)
    100-1100  steps 2 to 101, 10 s each
   1105       an Xid on n2; nothing ends any more
   1110       incident a opens, its verdict stands
   1112       the decision waits; 1142 otto approves it
   1143-1153  stop; 1153-1158 clean; 1158-1178 replace; 1178-1180 restart
   1181       the scheduler starts attempt 1 (it says so at 1190)
   1240-1280  first step after it, step 91, from the checkpoint at 90
   1280-1380  steps 92 to 101 once more
   1380-4800  steps 102 to 443
   1400       the incident closes
Job j2 (1 node): 0-2400, steps 1 to 120 of 20 s each, then it ends; one slow stretch that passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from actions.ledger_log import encode as encode_action
from telemetry.actions import (
    ActionRecord,
    Command,
    CommandStep,
    Decision,
    DecisionState,
    Outcome,
    Preconditions,
    Rail,
    Request,
    command_id,
)
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.findings import Evidence, Incident, Suspect, Verdict
from telemetry.records import (
    Allocation,
    Beat,
    Event,
    Job,
    JobNode,
    NodeInfo,
    Record,
    StepKind,
    Steps,
)
from telemetry.topics import ACTIONS, INCIDENTS, TELEMETRY

T0 = 1_800_000_000.0  # begins an hour
END_S = 4_800.0


def steps(job: str, number: int, end_s: float, took_s: float, kind: StepKind = "train") -> Steps:
    """One step of a whole job, as its log says it."""
    return Steps(
        at=T0 + end_s, node="", source="training", started_at=T0, seq=number, job=job,
        step_kind=kind, step=[number], step_time_s=[took_s],
    )  # fmt: skip


def job(name: str, nodes: int, start_s: float, attempt: int = 0, end_s: float | None = None) -> Job:
    """A job as the scheduler lists it."""
    return Job(
        id=name, attempt=attempt, start=T0 + start_s,
        end=None if end_s is None else T0 + end_s,
        nodes=[JobNode(f"{name}-n{number}") for number in range(1, nodes + 1)],
    )  # fmt: skip


def listing(at_s: float, *jobs: Job) -> Allocation:
    """A whole listing."""
    return Allocation(
        at=T0 + at_s, node="", source="inventory", started_at=T0, seq=int(at_s), jobs=list(jobs),
        nodes=[NodeInfo("j1-n1")], listing=f"l{at_s:.0f}", last=True, count=1,
    )  # fmt: skip


def telemetry() -> list[Record]:
    """In the order of time."""
    found: list[Record] = [listing(0, job("j1", 4, 0), job("j2", 1, 0))]
    found.append(steps("j1", 1, 100, 40, "first"))
    found += [steps("j1", number, 100 + 10 * (number - 1), 10) for number in range(2, 102)]
    xid = Event(
        at=T0 + 1_105, node="j1-n2", source="kernel", started_at=T0, seq=0, type="xid", code=79,
        text="NVRM: Xid (PCI:0000:c3:00): 79", severity="critical", boot_id="b", kmsg_seq=7,
    )  # fmt: skip
    found += [xid, xid]  # said twice, read twice
    found.append(listing(1_190, job("j1", 4, 1_181, 1), job("j2", 1, 0)))
    found.append(steps("j1", 91, 1_280, 40, "first"))
    found += [steps("j1", number, 1_280 + 10 * (number - 91), 10) for number in range(92, 444)]
    found += [steps("j2", number, 20 * number, 20) for number in range(1, 121)]
    found.append(listing(2_410, job("j1", 4, 1_181, 1), job("j2", 1, 0, end_s=2_400)))
    beat = Beat(at=T0 + END_S, node="", source="inventory", started_at=T0, seq=9)
    return [*sorted(found, key=lambda record: record.at), beat]


def incidents() -> list[Incident]:
    """Each in all its revisions."""
    certain = Verdict("isolate_and_restart", "Xid 79", ["j1-n2"], "now", T0 + 1_110,
                      "certain machine fault", None, "eviction")  # fmt: skip
    nothing = Verdict("page", "no node shows why", [], "now", T0 + 520, "slow job")
    one = Incident(
        id="a", rev=0, scope="node:j1-n2", opened_at=T0 + 1_110, closed_at=None, job="j1",
        cause="hardware", kind="gpu_lost", severity="critical", confidence=1.0,
        suspects=[Suspect("j1-n2", "", 1.0)],
        evidence=[Evidence("critical", "", None, None, "", T0 + 1_105, "Xid 79", "j1-n2")],
        verdict=certain, verdicts=[certain], certain=True,
    )  # fmt: skip
    slow = Incident(
        id="b", rev=0, scope="job:j2", opened_at=T0 + 520, closed_at=T0 + 900, job="j2",
        cause="unknown", kind="job_slow", severity="warning", confidence=0.5, suspects=[],
        evidence=[Evidence("straggler", "step_time_s", 30.0, 20.0, "s", T0 + 500, "slow")],
        verdict=nothing, verdicts=[nothing],
    )  # fmt: skip
    return [slow, one, _closed(one, 1_400)]


def _closed(one: Incident, at_s: float) -> Incident:
    return msgspec.structs.replace(one, rev=1, closed_at=T0 + at_s)


def decision(
    state: DecisionState, at_s: float, revision: int, reason: str, by: str = "rails"
) -> Decision:
    """Of incident a."""
    return Decision(
        id="d1", incident="a", rev=0, at=T0 + at_s, verdict=incidents()[1].verdict,
        mode="approve", rails=[Rail("budget", True, "0 of 2 an hour")], state=state,
        reason=reason, by=by, revision=revision, job="j1",
    )  # fmt: skip


def refused(number: int) -> Decision:
    """One of the budget's refusals."""
    return Decision(
        id=f"r{number}", incident=f"x{number}", rev=0, at=T0 + 2_000 + number,
        verdict=Verdict("isolate", "why", [f"n{number}"], "now", T0 + 2_000), mode="auto",
        rails=[Rail("budget", False, f"{number} of 2 an hour")], state="refused",
        reason=f"budget: n{number} would be {number + 2} of 2 an hour",
    )  # fmt: skip


def _step(step: CommandStep, from_s: float, to_s: float) -> list[ActionRecord]:
    name = command_id("d1", step)
    return [
        Command(
            id=name, decision="d1", action="isolate_and_restart", targets=["j1-n2"],
            preconditions=Preconditions(), intent_at=T0 + from_s, expires_at=T0 + from_s + 120,
            incident="a", job="j1", dry_run=False, step=step,
        ),
        Outcome(command=name, at=T0 + to_s, status="done", reason=f"{step} done"),
    ]  # fmt: skip


def actions() -> list[ActionRecord]:
    """In the order of the log."""
    return [
        decision("waiting", 1_112, 0, "asked"),
        Request(id="q1", at=T0 + 1_130, by="eve", role="viewer", verb="approve", target="d1",
                accepted=False, reason="approve needs the role operator"),
        Request(id="q2", at=T0 + 1_142, by="otto", role="operator", verb="approve", target="d1",
                accepted=True, reason="taken"),
        decision("approved", 1_142, 1, "approved by otto", "otto"),
        *_step("stop", 1_143, 1_153), *_step("clean", 1_153, 1_158),
        *_step("replace", 1_158, 1_178), *_step("restart", 1_178, 1_180),
        refused(1), refused(2), refused(3),
    ]  # fmt: skip


def values() -> Iterator[tuple[str, float, bytes, str]]:
    """(topic, arrival, value, kind) of all records."""
    for record in telemetry():
        yield TELEMETRY, record.at, encode(record), str(record.__struct_config__.tag)
    for incident in incidents():
        yield INCIDENTS, incident.opened_at, msgspec.json.encode(incident), ""
    for action in actions():
        yield ACTIONS, T0 + 1_112, encode_action(action), ""


def write(out: Path, without: tuple[str, ...] = ()) -> Path:
    """The log as an archive."""
    for topic in (TELEMETRY, INCIDENTS, ACTIONS):
        if topic in without:
            continue
        with ArchiveWriter(out, topic, 0) as writer:
            mine = [one for one in values() if one[0] == topic]
            for offset, (_, at, value, kind) in enumerate(mine):
                headers = [("kind", kind.encode())] if kind else []
                writer.append(offset, round(at * 1000.0), value, b"key", headers)
    return out
