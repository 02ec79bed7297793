"""Hosts that tell of a distributed error (Aegis): by their count, then by who broke first."""

from __future__ import annotations

from actions.policy.case import Case, counted, isolation, listed, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Verdict

ERRORS = "process_nccl"  # what the critical detector calls the training log's NCCL errors
QUARANTINE = "quarantine of the job's nodes"


def hosts(case: Case) -> list[str]:
    """The hosts whose log tells of a distributed error, sorted."""
    lines = case.incident.evidence
    return sorted({line.node for line in lines if line.node and line.metric.startswith(ERRORS)})


def _is_distributed(case: Case) -> bool:
    jobs = case.incident.kind in ("job_hang", "job_slow", "loss_anomaly")
    return jobs and not case.suspects and bool(hosts(case))


def _lead(case: Case) -> str:
    told, of = len(hosts(case)), len(case.context.job_nodes)
    return f"{counted(told, 'host')} of {of} of the job tell of a distributed error"


def _found(case: Case) -> bool:
    answer = case.answer("root_diag", "config_and_net")
    return answer is not None and bool(answer.nodes)


def _root(case: Case) -> Verdict:
    answer = case.answer("root_diag", "config_and_net")
    assert answer is not None
    assert answer.nodes
    by = "RootDiag" if answer.step == "root_diag" else "ConfigCheck and NetDiag"
    reason = f"{_lead(case)}, and {by} traces it to {listed(answer.nodes)}."
    return isolation(case, DISTRIBUTED.name, reason, nodes=answer.nodes)


def _is_blank(case: Case) -> bool:
    """Whether every diagnosis of the running job came back with nothing."""
    return case.answer("config_and_net") is not None


def _quarantine(case: Case) -> Verdict:
    nodes = case.context.job_nodes
    reason = (
        f"{_lead(case)}; RootDiag, ConfigCheck and NetDiag found nothing: hold all "
        f"{counted(len(nodes), 'node')} of job {case.incident.job} for offline diagnosis. A "
        "person has to approve it."
    )
    return isolation(case, QUARANTINE, reason, nodes=nodes, step="quarantine")


def _has_no_root(case: Case) -> bool:
    return case.answer("root_diag") is not None


def _config_and_net(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}, and RootDiag finds no host from or to which connections broke first: "
        "run ConfigCheck, and NetDiag with packets of the job's size."
    )
    return said(case, DISTRIBUTED.name, "diagnose", reason, step="config_and_net")


def _due_s(case: Case) -> float:
    return case.incident.opened_at + case.policy.distributed_wait_s


def _wait(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}: wait {case.policy.distributed_wait_s:g} s for others, since their count "
        "decides."
    )
    return said(case, DISTRIBUTED.name, "none", reason, recheck_at=_due_s(case))


def _is_contrast(case: Case) -> bool:
    """Whether few hosts stand against many that are heard and tell of nothing."""
    context, policy, told = case.context, case.policy, hosts(case)
    few = len(told) <= policy.suspects_max and set(told) <= set(context.job_nodes)
    heard = context.blind_share <= policy.blind_share_max
    many = len(context.job_nodes) >= policy.distributed_nodes_min
    return few and heard and many and context.job_progressing is False


def _isolate(case: Case) -> Verdict:
    told = hosts(case)
    reason = (
        f"{_lead(case)}: {listed(told)}; at most {case.policy.suspects_max} are isolated without "
        "more diagnosis."
    )
    return isolation(case, DISTRIBUTED.name, reason, nodes=told)


def _root_diag(case: Case) -> Verdict:
    reason = (
        f"{_lead(case)}; only up to {case.policy.suspects_max} of at least "
        f"{case.policy.distributed_nodes_min}, all heard, in a job that stands still, would go by "
        "their count: run RootDiag, which clusters the first broken connections by source and by "
        "destination."
    )
    return said(case, DISTRIBUTED.name, "diagnose", reason, step="root_diag")


DISTRIBUTED = Rung(
    "distributed error",
    "Do hosts tell of a distributed error, and is no node under suspicion?",
    _is_distributed,
    (
        Branch("a diagnosis found the root", "isolate it and restart now", _found, _root),
        Branch(
            "ConfigCheck and NetDiag found nothing",
            "quarantine the job's nodes (approval, its own budget)",
            _is_blank,
            _quarantine,
        ),
        Branch("RootDiag found nothing", "ConfigCheck and NetDiag", _has_no_root, _config_and_net),
        Branch(
            "for less than {policy.distributed_wait_s:g} s",
            "wait for other hosts",
            lambda case: case.now_s < _due_s(case),
            _wait,
        ),
        Branch(
            "up to {policy.suspects_max} hosts of a job of at least "
            "{policy.distributed_nodes_min} that stands still",
            "isolate them and restart now",
            _is_contrast,
            _isolate,
        ),
        Branch("else", "RootDiag", always, _root_diag),
    ),
)
