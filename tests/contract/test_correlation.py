"""What correlation and the ladder promise for any findings in any order."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.policy import verdict
from detectors.base import FindingBook, Sighting
from detectors.correlation import Correlator
from telemetry.findings import ISOLATING, Context, Finding, Incident
from telemetry.settings import CorrelationSettings, EngineSettings
from tests.fakes import cluster

RULES = EngineSettings(correlation=CorrelationSettings(clear_s=60.0, reopen_s=120.0, join_s=300.0))
VIEW = cluster(12, 4)
NODES = list(VIEW.jobs["j1"])
ECN = "nic_ecn_marked_packets_total"


def sightings(node: str, metric: str, onset_s: float) -> list[Sighting]:
    """One of each shape that detectors say."""
    base = Sighting(True, "critical", node, "", "", onset_s)
    return [
        replace(base, metric="xid_79", kind="gpu_lost", cause="hardware", certain=True),
        replace(base, metric="xid_31", kind="gpu_fault", cause="user_code", role="evidence"),
        replace(base, metric="nic_link_downed_total", kind="nic_flap", cause="network"),
        replace(base, metric="storage_event", kind="storage", cause="hardware"),
        replace(base, detector="silence", metric="last_heard_s", kind="node_silent"),
        replace(base, detector="straggler", node="", metric="step_time_s", kind="job_slow",
                job="j1"),
        replace(base, detector="training", node="", metric="loss", kind="loss_anomaly", job="j1"),
        replace(base, metric="process_user_code", kind="user_error", cause="user_code", job="j1"),
        replace(base, detector="zscore", metric=metric, kind="nic_congested", cause="network",
                role="evidence", observed=9e3, expected=0.0, score=5.0),
        replace(base, detector="should_be_zero", metric=metric, kind="nic_congested",
                cause="network", role="evidence", observed=9e3, expected=0.0),
    ]  # fmt: skip


MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(NODES),
        st.sampled_from([ECN, "nic_cnp_handled_packets_total"]),
        st.booleans(),
        st.sampled_from([1.0, 20.0, 200.0]),
    ),
    max_size=30,
)
Log = list[tuple[float, list[Finding]]]


def told(moments: list[tuple[int, str, str, bool, float]]) -> Log:
    """The findings that a book makes of them, and when."""
    book, now_s, log = FindingBook("main"), 1_000.0, []
    for shape, node, metric, active, wait_s in moments:
        now_s += wait_s
        seen = replace(sightings(node, metric, now_s - 5.0)[shape], active=active)
        finding = book.say(seen, now_s)
        log.append((now_s, [] if finding is None else [finding]))
    return log


def run(one: Correlator, log: Log) -> list[list[Incident]]:
    return [[*one.take(found, VIEW, at), *one.advance(at, VIEW)] for at, found in log]


@given(moments=MOMENTS)
@settings(deadline=None, max_examples=150)
def test_revisions_follow_each_other_and_every_open_fault_is_told_once(
    moments: list[tuple[int, str, str, bool, float]],
) -> None:
    one, log = Correlator(RULES), told(moments)
    newest: dict[str, Incident] = {}
    open_faults: set[str] = set()
    for (_, found), said in zip(log, run(one, log), strict=True):
        for incident in said:
            assert incident.rev == (newest[incident.id].rev + 1 if incident.id in newest else 0)
            newest[incident.id] = incident
        for finding in found:
            if finding.role == "fault":
                (open_faults.discard if finding.state == "clear" else open_faults.add)(finding.id)

    shown = [key for i in newest.values() if i.closed_at is None for key in i.findings]
    assert all(shown.count(key) == 1 for key in open_faults)
    assert {i.id: i for i in one.incidents()} == {
        key: i for key, i in newest.items() if i.closed_at is None
    }


@given(moments=MOMENTS)
@settings(deadline=None, max_examples=100)
def test_evidence_never_opens_and_everything_closes_in_the_end(
    moments: list[tuple[int, str, str, bool, float]],
) -> None:
    log = told(moments)
    evidence = [(at, [f for f in found if f.role == "evidence"]) for at, found in log]
    assert [] == [i for said in run(Correlator(RULES), evidence) for i in said]

    one = Correlator(RULES)
    run(one, log)
    end_s = log[-1][0] if log else 0.0
    newest = {f.id: f for _, found in log for f in found}
    ends = [
        msgspec.structs.replace(f, state="clear") for f in newest.values() if f.state != "clear"
    ]
    one.take(ends, VIEW, end_s)
    one.advance(end_s + 60.0, VIEW)
    assert [] == one.incidents()


@given(moments=MOMENTS, cut=st.integers(0, 30))
@settings(deadline=None, max_examples=100)
def test_a_restart_changes_nothing(
    moments: list[tuple[int, str, str, bool, float]], cut: int
) -> None:
    log = told(moments)
    first, second = Correlator(RULES), Correlator(RULES)
    before = run(first, log[:cut])
    second.restore(json.loads(msgspec.json.encode(first.snapshot())))

    assert run(Correlator(RULES), log) == [*before, *run(second, log[cut:])]


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 10), st.sampled_from(NODES), st.booleans()), max_size=12),
        max_size=5,
    ),
    shuffled=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=150)
def test_the_order_of_what_is_heard_at_one_time_changes_nothing(
    batches: list[list[tuple[int, str, bool]]], shuffled: random.Random
) -> None:
    book, log = FindingBook("main"), []
    for at, batch in enumerate(batches):
        now_s, once = 1_000.0 + 40.0 * at, set()
        found = []
        for shape, node, active in batch:
            if (shape, node) not in once:
                seen = [*sightings(node, ECN, now_s - 5.0), _hearsay(node, now_s - 5.0)][shape]
                found.append(book.say(replace(seen, active=active), now_s))
            once.add((shape, node))
        log.append((now_s, [finding for finding in found if finding is not None]))
    other = [(at, shuffled.sample(found, len(found))) for at, found in log]

    assert run(Correlator(RULES), log) == run(Correlator(RULES), other)


def _hearsay(node: str, onset_s: float) -> Sighting:
    return Sighting(True, "dist_error", node, "peer:n07", "process_nccl", onset_s, role="evidence",
                    kind="nic_fault", cause="network")  # fmt: skip


@given(moments=MOMENTS)
@settings(deadline=None, max_examples=150)
def test_nobody_is_isolated_without_evidence_of_his_own(
    moments: list[tuple[int, str, str, bool, float]],
) -> None:
    one = Correlator(RULES)
    context = Context(job_nodes=NODES, job_progressing=True, replacements=1, ledger=[],
                      blind_share=0.0, protected=["n01"])  # fmt: skip
    accused: set[str] = set()
    for at, found in told(moments):
        accused |= {
            f.node
            for f in found
            if f.certain or f.detector == "zscore" or f.kind in ("nic_flap", "storage")
        }
        for incident in one.take(found, VIEW, at):
            said = verdict(incident, context, RULES.policy, at)
            assert set(said.targets) <= accused - {"n01"} or said.action not in ISOLATING
            one.decided(msgspec.structs.replace(incident, verdict=said))
