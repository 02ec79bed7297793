"""What nodes share, and links that fall."""

from __future__ import annotations

from actions.policy.case import Case, isolation, said
from actions.policy.table import Branch, Rung, always
from telemetry.findings import Verdict


def _is_shared(case: Case) -> bool:
    """Whether the story is of many nodes at once."""
    incident = case.incident
    leaf = any(suspect.entity.startswith("leaf:") for suspect in incident.suspects)
    common = incident.cause == "common_mode" or incident.kind in ("fabric", "fleet_shift")
    return leaf or common or incident.scope.startswith("leaf:")


def _nodes(case: Case) -> set[str]:
    return {line.node for line in case.incident.evidence if line.node}


def _leaves(case: Case) -> list[str]:
    return sorted(s.entity.removeprefix("leaf:") for s in case.incident.suspects if not s.node)


def _switch_tells(case: Case) -> bool:
    lines = case.incident.evidence
    return not _nodes(case) and any(line.entity.startswith("switch:") for line in lines)


def _switch(case: Case) -> Verdict:
    reason = f"A switch tells of itself: {case.first_text}. Page the network team, isolate nobody."
    return said(case, SHARED.name, "page", reason)


def _leaf(case: Case) -> Verdict:
    return _together(case, f"share the leaf switch {', '.join(_leaves(case))}")


def _many(case: Case) -> Verdict:
    return _together(case, "are too many of the job to be each at fault")


def _together(case: Case, whose: str) -> Verdict:
    reason = (
        f"Together {len(_nodes(case))} nodes suffer, and they {whose}: a matter of what they "
        "share. Page the network or site team, isolate nobody."
    )
    return said(case, SHARED.name, "page", reason)


def _fell(case: Case) -> str:
    events, policy = case.incident.network_events, case.policy
    return (
        f"{case.first_text}; {events} of {policy.network_events} in {policy.network_window_s:g} s."
    )


def _first_fall(case: Case) -> Verdict:
    """A link that fell usually comes back: the first time is free."""
    reason = f"A link fell: {_fell(case)} Wait for it to recover by itself."
    return said(case, FLAP.name, "none", reason)


def _falls_again(case: Case) -> Verdict:
    return isolation(case, FLAP.name, f"A link does not stay up: {_fell(case)}")


SHARED = Rung(
    "common mode, fabric or leaf",
    "Do many nodes suffer at once?",
    _is_shared,
    (
        Branch("a switch tells of itself", "page the network team", _switch_tells, _switch),
        Branch(
            "they share a leaf switch",
            "page the network or site team, isolate nobody",
            lambda case: bool(_leaves(case)),
            _leaf,
        ),
        Branch("else", "page the network or site team, isolate nobody", always, _many),
    ),
)
FLAP = Rung(
    "network event",
    "Did a link fall?",
    lambda case: case.incident.kind == "nic_flap",
    (
        Branch(
            "fewer than {policy.network_events} times in {policy.network_window_s:g} s",
            "wait for it to recover by itself",
            lambda case: case.incident.network_events < case.policy.network_events,
            _first_fall,
        ),
        Branch("else", "isolate and restart now", always, _falls_again),
    ),
)
