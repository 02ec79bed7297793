"""Crash or NaN without a suspect: checks, retry, rollback, dual-phase replay (ByteRobust).

Each step is asked for once the one before it is known to have found nothing or to have failed.
What nobody told stays unknown: then the step that is due is asked for again.
"""

from __future__ import annotations

from actions.policy.case import Case, isolation, listed, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Verdict

_BY = {"checks": "The stop-time checks", "replay": "The dual-phase replay"}


def _lead(case: Case) -> str:
    return f"The job failed: {case.first_text}, and no node is under suspicion"


def _ago(case: Case, at: float) -> str:
    return f"{case.now_s - at:.0f} s ago"


def _found(case: Case) -> bool:
    answer = case.answer("checks", "replay")
    return answer is not None and bool(answer.nodes)


def _evict(case: Case) -> Verdict:
    answer = case.answer("checks", "replay")
    assert answer is not None
    assert answer.nodes
    reason = (
        f"{_BY[answer.step]} found {listed(sorted(answer.nodes))} {_ago(case, answer.at)}: "
        f"{case.first_text}."
    )
    return isolation(case, CRASH.name, reason, nodes=answer.nodes, step="checked_eviction")


def _nothing_left(case: Case) -> Verdict:
    answer = case.answer("replay")
    assert answer is not None
    reason = (
        f"{_lead(case)}; checks, retry, rollback and the dual-phase replay ({_ago(case, answer.at)}"
        ") found nothing: page, people have to look."
    )
    return said(case, CRASH.name, "page", reason)


def _replay(case: Case) -> Verdict:
    tried = case.failed("rollback")
    assert tried is not None
    reason = (
        f"{_lead(case)}; it failed again after the rollback {_ago(case, tried.at)}: replay the "
        "same data on groups of machines, in two phases."
    )
    return said(case, CRASH.name, "diagnose", reason, step="replay")


def _due_rollback(case: Case) -> bool:
    return case.failed("retry", "checked_eviction") is not None


def _rollback(case: Case) -> Verdict:
    tried = case.failed("retry", "checked_eviction")
    assert tried is not None
    what = "the retry" if tried.step == "retry" else "the eviction that followed the checks"
    reason = (
        f"{_lead(case)}; it failed again after {what} {_ago(case, tried.at)}: roll back the code "
        "and the data to what ran before."
    )
    return said(case, CRASH.name, "rollback", reason, step="rollback")


def _retry(case: Case) -> Verdict:
    answer = case.answer("checks")
    assert answer is not None
    reason = (
        f"{_lead(case)}; the stop-time checks passed {_ago(case, answer.at)}, so it may have "
        "passed by itself: retry in place."
    )
    return said(case, CRASH.name, "restart", reason, step="retry")


def _checks_again(case: Case) -> Verdict:
    tried = case.evicted_before()
    assert tried is not None
    before_s = case.incident.opened_at - tried.at
    reason = (
        f"{_lead(case)}; it came {before_s:.0f} s after {listed(tried.nodes or [])} was to be "
        "isolated in the running job, which was not all. Run the stop-time checks."
    )
    return _diagnose(case, reason)


def _checks(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}. "
        "Run the stop-time checks; where they pass retry, roll back, replay in two phases."
    )
    return _diagnose(case, reason)


def _diagnose(case: Case, reason: str) -> Verdict:
    return said(case, CRASH.name, "diagnose", reason, step="checks")


CRASH = Rung(
    "crash or NaN without suspect",
    "Did the job fail, and is no node under suspicion?",
    lambda case: case.incident.kind in ("loss_anomaly", "job_hang", "job_slow"),
    (
        Branch(
            "the stop-time checks or the replay found nodes",
            "isolate them and restart now",
            _found,
            _evict,
        ),
        Branch(
            "the dual-phase replay found nothing",
            "page",
            lambda case: case.answer("replay") is not None,
            _nothing_left,
        ),
        Branch(
            "it failed again after a rollback",
            "dual-phase replay",
            lambda case: case.failed("rollback") is not None,
            _replay,
        ),
        Branch(
            "it failed again after a retry, or after an eviction that followed checks",
            "roll back",
            _due_rollback,
            _rollback,
        ),
        Branch(
            "the stop-time checks passed",
            "retry in place",
            lambda case: case.answer("checks") is not None,
            _retry,
        ),
        Branch(
            "it came after an eviction in the running job",
            "stop-time checks",
            lambda case: case.evicted_before() is not None,
            _checks_again,
        ),
        Branch("else", "stop-time checks", always, _checks),
    ),
)
