"""Every rung of the ladder, beside what looks like it and must not climb it."""

from __future__ import annotations

import msgspec
import pytest

from actions.policy import verdict
from telemetry.findings import (
    ISOLATING,
    Action,
    Cause,
    Context,
    Evidence,
    Incident,
    Isolation,
    Kind,
    Suspect,
    Verdict,
    When,
)
from telemetry.settings import PolicySettings

POLICY = PolicySettings()
UNDECIDED = Verdict("none", "", [], "now", 0.0)
CONTEXT = Context(
    job_nodes=["n01", "n02", "n03"], job_progressing=True, replacements=2, ledger=[],
    blind_share=0.0, protected=[],
)  # fmt: skip
STEP_TIME = Evidence("straggler", "step_time_s", 6.3, 5.0, "s", 10.0, "step time 6.3 s against 5 s")


def line(text: str, node: str = "n02", metric: str = "xid_79") -> Evidence:
    return Evidence("critical", metric, None, None, "", 12.0, text, node)


def incident(
    kind: Kind,
    cause: Cause = "hardware",
    suspects: tuple[str, ...] = (),
    evidence: tuple[Evidence, ...] = (),
    job: str = "j1",
    scope: str = "job:j1",
    confidence: float = 0.8,
    certain: bool = False,
    network_events: int = 0,
) -> Incident:
    return Incident(
        id="i1", rev=0, scope=scope, opened_at=100.0, closed_at=None, job=job, cause=cause,
        kind=kind, severity="warning", confidence=confidence,
        suspects=[Suspect(node, "", confidence) for node in suspects], evidence=list(evidence),
        verdict=UNDECIDED, verdicts=[], certain=certain, network_events=network_events,
    )  # fmt: skip


def slow(suspects: tuple[str, ...] = ("n02",), confidence: float = 0.8) -> Incident:
    lines = tuple(line("ECN 20000/s", node, "nic_ecn_marked_packets_total") for node in suspects)
    return incident("nic_congested", "network", suspects, (STEP_TIME, *lines), "j1", "job:j1",
                    confidence)  # fmt: skip


XID = (line("Xid 79 (GPU has fallen off the bus)"),)
FLAP = (line("the link went down"),)
NAN = (Evidence("training", "loss", None, None, "", 10.0, "the loss is NaN at step 7"),)
SPIKE = Evidence("curves", "loss_jump", 7.9, 2.1, "", 10.0, "the loss went up to 7.9 from 2.1")
LEAF = msgspec.structs.replace(
    incident("fabric", "network", (), (STEP_TIME, line("ECN", "n01"), line("ECN", "n02"))),
    suspects=[Suspect("", "leaf:l1", 1.0)],
)


@pytest.mark.parametrize(
    ("given", "now_s", "rung", "action", "when", "targets"),
    [
        (incident("gpu_lost", suspects=("n02",), evidence=XID, certain=True), 100.0,
         "certain machine fault", "isolate_and_restart", "now", ["n02"]),
        (incident("gpu_lost", suspects=("n02",), evidence=XID, certain=True, job=""), 100.0,
         "certain machine fault", "isolate", "now", ["n02"]),
        (incident("gpu_fault", suspects=("n02",), evidence=XID), 100.0,
         "uncertain machine fault", "page", "now", []),
        (incident("host", evidence=()), 100.0, "uncertain machine fault", "page", "now", []),
        (incident("nic_flap", "network", ("n02",), FLAP, network_events=1), 100.0,
         "network event", "none", "now", []),
        (incident("nic_flap", "network", ("n02",), FLAP, network_events=2), 100.0,
         "network event", "isolate_and_restart", "now", ["n02"]),
        (incident("user_error", "user_code", (), (line("IndexError: list index", ""),)), 100.0,
         "user code", "page", "now", []),
        (incident("loss_anomaly", "unknown", (), NAN), 100.0,
         "crash or NaN without suspect", "diagnose", "now", []),
        (incident("job_hang", "unknown"), 100.0,
         "crash or NaN without suspect", "diagnose", "now", []),
        (slow(), 100.0, "slow job with node evidence", "isolate_and_restart", "at_checkpoint",
         ["n02"]),
        (slow(("n03", "n01")), 100.0, "slow job with node evidence", "isolate_and_restart",
         "at_checkpoint", ["n01", "n03"]),
        (slow(("n01", "n02", "n03")), 100.0, "slow job with unclear evidence", "diagnose", "now",
         ["n01", "n02", "n03"]),
        (slow(confidence=0.49), 100.0, "slow job with unclear evidence", "diagnose", "now",
         ["n02"]),
        (incident("job_slow", "unknown", (), (STEP_TIME,)), 999.0,
         "slow job without suspect", "none", "now", []),
        (incident("job_slow", "unknown", (), (STEP_TIME,)), 1_000.0,
         "slow job without suspect", "diagnose", "now", []),
        (incident("nic_congested", "network", ("n02",), (STEP_TIME,)), 999.0,
         "slow job without suspect", "none", "now", []),
        (LEAF, 100.0, "common mode, fabric or leaf", "page", "now", []),
        (incident("fabric", "network", (), FLAP, scope="leaf:l1"), 100.0,
         "common mode, fabric or leaf", "page", "now", []),
        (incident("fleet_shift", "common_mode", (), (STEP_TIME,)), 100.0,
         "common mode, fabric or leaf", "page", "now", []),
        (incident("loss_anomaly", "unknown", (), (SPIKE,)), 100.0,
         "loss spike", "page", "now", []),
        (incident("node_silent", "unknown", (), (line("n02 is silent"),)), 100.0,
         "node silent", "page", "now", []),
        (incident("telemetry_gap", "telemetry"), 100.0, "telemetry", "page", "now", []),
    ],
)  # fmt: skip
def test_each_rung(
    given: Incident, now_s: float, rung: str, action: Action, when: When, targets: list[str]
) -> None:
    said = verdict(given, CONTEXT, POLICY, now_s)

    assert (rung, action, when, targets) == (said.rung, said.action, said.when, said.targets)
    assert now_s == said.at
    assert said.reason[0].isupper()
    assert said.reason.endswith(".")


def test_reasons_carry_the_numbers() -> None:
    flap = incident("nic_flap", "network", ("n02",), FLAP, network_events=1)
    user = incident("user_error", "user_code", (), (line("IndexError: list index", ""),))

    assert "1 of 2 in 300 s" in verdict(flap, CONTEXT, POLICY, 100.0).reason
    assert "IndexError: list index" in verdict(user, CONTEXT, POLICY, 100.0).reason
    assert "6.3 s against 5 s" in verdict(slow(), CONTEXT, POLICY, 100.0).reason
    assert "leaf switch l1" in verdict(LEAF, CONTEXT, POLICY, 100.0).reason


def test_a_slow_job_without_suspect_asks_to_be_asked_again_when_the_wait_is_over() -> None:
    alone = incident("job_slow", "unknown", (), (STEP_TIME,))

    assert verdict(alone, CONTEXT, POLICY, 100.0).recheck_at == 100.0 + POLICY.evidence_wait_s
    assert verdict(alone, CONTEXT, POLICY, 1_000.0).recheck_at is None


SILENT = incident("node_silent", "unknown", ("n02",), (line("n02 is silent"),), scope="node:n02")


def test_a_silent_node_is_isolated_only_when_its_job_stands_still_after_the_wait() -> None:
    stands = msgspec.structs.replace(CONTEXT, job_progressing=False)
    due_s = 100.0 + POLICY.silent_wait_s

    early = verdict(SILENT, stands, POLICY, due_s - 1.0)
    late = verdict(SILENT, stands, POLICY, due_s)

    assert ("page", due_s) == (early.action, early.recheck_at)
    assert ("isolate_and_restart", ["n02"], "now") == (late.action, late.targets, late.when)


@pytest.mark.parametrize(
    ("context", "given"),
    [
        (CONTEXT, SILENT),  # only its telemetry is dead
        (msgspec.structs.replace(CONTEXT, job_progressing=None), SILENT),
        (msgspec.structs.replace(CONTEXT, job_progressing=False, job_nodes=[]), SILENT),  # job over
        (msgspec.structs.replace(CONTEXT, job_progressing=False, blind_share=0.6), SILENT),
        (
            msgspec.structs.replace(CONTEXT, job_progressing=False),
            incident("node_silent", "unknown", ("n01", "n02", "n03")),
        ),
    ],
)
def test_silence_without_a_second_witness_is_paged(context: Context, given: Incident) -> None:
    said = verdict(given, context, POLICY, 1_000.0)

    assert ("page", [], None) == (said.action, said.targets, said.recheck_at)


def test_a15_a_node_that_no_listing_knows_is_paged_and_not_isolated() -> None:
    """Its label may be the exporter's pod: telemetry is kept, an action is refused."""
    pod = "nvidia-dcgm-exporter-abc12"
    given = msgspec.structs.replace(
        incident("gpu_lost", "hardware", (pod,), (line("Xid 79", pod),)), certain=True
    )
    known = verdict(given, CONTEXT, POLICY, 100.0)
    unknown = verdict(given, msgspec.structs.replace(CONTEXT, unlisted=[pod]), POLICY, 100.0)
    assert known.targets == [pod]
    assert (unknown.action, unknown.targets) == ("page", [])
    assert f"No listing knows {pod}" in unknown.reason


def test_a_protected_node_is_never_isolated_its_neighbour_is() -> None:
    context = msgspec.structs.replace(CONTEXT, protected=["n02"])

    alone = verdict(slow(("n02",)), context, POLICY, 100.0)
    both = verdict(slow(("n01", "n02")), context, POLICY, 100.0)

    assert ("page", []) == (alone.action, alone.targets)
    assert "n02 is protected" in alone.reason
    assert ("isolate_and_restart", ["n01"]) == (both.action, both.targets)


def test_a_job_that_progresses_is_not_stopped_without_a_replacement() -> None:
    none_free = msgspec.structs.replace(CONTEXT, replacements=0)
    stands = msgspec.structs.replace(none_free, job_progressing=False)
    unknown = msgspec.structs.replace(CONTEXT, replacements=None, job_progressing=None)

    assert "page" == verdict(slow(), none_free, POLICY, 100.0).action
    assert "now" == verdict(slow(), stands, POLICY, 100.0).when
    assert "at_checkpoint" == verdict(slow(), unknown, POLICY, 100.0).when


def test_peers_that_are_not_heard_prove_no_contrast_but_a_certain_fault_stays_certain() -> None:
    blind = msgspec.structs.replace(CONTEXT, blind_share=0.6)
    lost = incident("gpu_lost", suspects=("n02",), evidence=XID, certain=True)

    assert "diagnose" == verdict(slow(), blind, POLICY, 100.0).action
    assert "isolate_and_restart" == verdict(lost, blind, POLICY, 100.0).action


def test_what_was_isolated_for_this_incident_is_said_again_unchanged() -> None:
    first = Verdict("isolate_and_restart", "Because.", ["n02"], "now", 50.0, "network event")
    ledger = [Isolation("n02", 50.0, "i1")]
    context = msgspec.structs.replace(CONTEXT, ledger=ledger)
    told = msgspec.structs.replace(slow(), verdict=first)
    later = msgspec.structs.replace(slow(), verdicts=[first])

    assert first == verdict(told, context, POLICY, 200.0)
    assert first == verdict(later, context, POLICY, 200.0)


@pytest.mark.parametrize(
    ("ledger", "suspects"),
    [
        ([Isolation("n02", 50.0, "other")], ("n02",)),  # another incident's
        ([Isolation("n02", 50.0, "i1")], ("n01", "n02")),  # one more suspect
        ([Isolation("n02", 50.0, "i1")], ("n02",)),  # the ledger knows it, the incident does not
    ],
)
def test_only_the_same_suspects_of_the_same_incident_are_settled(
    ledger: list[Isolation], suspects: tuple[str, ...]
) -> None:
    said = verdict(slow(suspects), msgspec.structs.replace(CONTEXT, ledger=ledger), POLICY, 200.0)

    assert said.action in ISOLATING
    assert (200.0, sorted(suspects)) == (said.at, said.targets)


def test_an_application_error_that_comes_back_at_one_place_is_diagnosed() -> None:
    again = incident(
        "gpu_fault", "unknown", ("n02",), (line("13 at GPC 3", "n02", "xid_13_same_place"),)
    )
    said = verdict(again, CONTEXT, POLICY, 100.0)
    assert ("diagnose", ["n02"]) == (said.action, said.targets)


def test_a_gpu_that_is_no_longer_shown_is_isolated_where_its_job_stands_still() -> None:
    lost = incident("gpu_lost", suspects=("n02",), evidence=(line("7 of 8", "n02", "gpu_count"),))
    stands = msgspec.structs.replace(CONTEXT, job_progressing=False)

    assert "page" == verdict(lost, CONTEXT, POLICY, 100.0).action
    assert ["n02"] == verdict(lost, stands, POLICY, 100.0).targets
    foreign = msgspec.structs.replace(stands, job_nodes=["n09"])
    blind = msgspec.structs.replace(stands, blind_share=0.6)
    assert {"page"} == {verdict(lost, c, POLICY, 100.0).action for c in (foreign, blind)}
