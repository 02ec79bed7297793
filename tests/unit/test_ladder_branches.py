"""Each branch of the ladder's table, taken once, with a reason that names its numbers."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from actions.policy import picture, verdict
from actions.policy.case import Case
from actions.policy.ladder import LADDER
from telemetry.attempts import Attempt
from telemetry.findings import Context, Evidence, Incident, Isolation, Kind, Suspect, Verdict
from telemetry.settings import PolicySettings

POLICY = PolicySettings()
NODES = [f"n{number:02}" for number in range(1, 17)]
PAGE = Path(__file__).parents[2] / "docs" / "ladder.md"
NOW = 5_000.0
GIVEN = Verdict("isolate_and_restart", "Because.", ["n02"], "now", 50.0, "network event")


def line(text: str, node: str = "", metric: str = "m", **more: Any) -> Evidence:
    return msgspec.structs.replace(
        Evidence("critical", metric, None, None, "", 1_000.0, text, node), **more
    )


STEP_TIME = line("step time 6.3 s against 5 s", metric="step_time_s", detector="straggler")
ECN = line("ECN 20000/s", "n02")
HANG = line("j1 ends no step: 620 s in a training step", detector="progress", metric="hang")
NAN = line("the loss is NaN at step 7", metric="loss", detector="training")
NCCL = [line("NCCL WARN 7", node, "process_nccl") for node in NODES[:3]]


def incident(kind: Kind, *evidence: Evidence, suspects: str = "", **more: Any) -> Incident:
    one = Incident(
        id="i1", rev=0, scope="job:j1", opened_at=1_000.0, closed_at=None, job="j1",
        cause="unknown", kind=kind, severity="warning", confidence=0.8,
        suspects=[Suspect(node, "", 0.8) for node in suspects.split()], evidence=list(evidence),
        verdict=Verdict("none", "", [], "now", 0.0), verdicts=[],
    )  # fmt: skip
    return msgspec.structs.replace(one, **more)


def context(*tried: Attempt, **more: Any) -> Context:
    known = Context(
        job_nodes=NODES, job_progressing=True, replacements=None, ledger=[], blind_share=0.0,
        protected=[], attempts=list(tried),
    )  # fmt: skip
    return msgspec.structs.replace(known, **more)


def tried(step: Any, at: float = 2_000.0, incident: str = "i1", **more: Any) -> Attempt:
    return Attempt(step=step, at=at, incident=incident, told=True, **more)


CRASH = incident("loss_anomaly", NAN)
STANDS = context(job_progressing=False)
PP: dict[str, Any] = {"nodes": NODES[:4], "scores": [0.1, 0.1, 0.9, 0.8], "group": "pp 0"}
USER = incident("user_error", line("IndexError: list index", metric="process_user_code"))
SILENT = incident("node_silent", line("n02 is silent for 130 s", "n02"), suspects="n02")
FABRIC = incident("fabric", line("ECN", "n01"), line("ECN", "n02"))


@dataclass(frozen=True)
class Row:
    """A branch (rung and condition) with a case that takes it, and what it says."""

    rung: str
    when: str
    incident: Incident
    context: Context
    action: str
    targets: list[str] = field(default_factory=list)
    words: str = ""
    now_s: float = NOW


def row(rung: str, when: str, given: Incident, known: Context, action: str, targets: str = "",
        words: str = "", now_s: float = NOW) -> Row:  # fmt: skip
    return Row(rung, when, given, known, action, targets.split(), words, now_s)


ROWS = [
    row("telemetry", "yes", incident("telemetry_gap", line("10 of 16 nodes silent")), context(),
        "page", words="10 of 16 nodes"),
    row("what worked", "a retry", CRASH, context(tried("retry", worked=True)), "none",
        words="3000 s ago, worked"),
    row("already isolated", "yes", incident("nic_flap", suspects="n02", verdict=GIVEN),
        context(ledger=[Isolation("n02", 50.0, "i1")]), "isolate_and_restart", "n02", "Because"),
    row("certain machine fault", "it slows",
        incident("gpu_thermal", line("91 C", "n02"), suspects="n02", certain=True), context(),
        "isolate_and_restart", "n02", "91 C"),
    row("certain machine fault", "else",
        incident("gpu_lost", line("Xid 79", "n02"), suspects="n02", certain=True), context(),
        "isolate_and_restart", "n02", "Xid 79"),
    row("user code", "it fails after", USER, context(tried("rollback", incident="i0", at=900.0)),
        "page", words="rolled back 4100 s ago"),
    row("user code", "the code changed", USER, context(code_changed_at=4_000.0), "rollback",
        words="changed 1000 s ago (lately is within 86400 s)"),
    row("user code", "else", USER, context(code_changed_at=-90_000.0), "page", words="IndexError"),
    row("common mode, fabric or leaf", "a switch",
        incident("fabric", line("fan 3 failed", entity="switch:s1")), context(), "page",
        words="fan 3"),
    row("common mode, fabric or leaf", "they share",
        msgspec.structs.replace(FABRIC, suspects=[Suspect("", "leaf:l1", 1.0)]), context(), "page",
        words="2 nodes"),
    row("common mode, fabric or leaf", "else", FABRIC, context(), "page", words="2 nodes"),
    row("node silent", "its job stood", SILENT, context(job_still_s=900.0), "page",
        words="130 s"),
    row("node silent", "for less", SILENT, context(), "page", words="after 120 s", now_s=1_100.0),
    row("node silent", "its job stands", SILENT, STANDS, "isolate_and_restart", "n02", "130 s"),
    row("node silent", "else", SILENT, context(), "page", words="130 s"),
    row("slow job with node evidence", "more than {policy.s",
        incident("nic_congested", STEP_TIME, ECN, suspects="n02", confidence=0.4), context(),
        "diagnose", "n02", "1 nodes stand out at a confidence of 0.40 (at most 2"),
    row("slow job with node evidence", "more than {policy.b",
        incident("nic_congested", STEP_TIME, ECN, suspects="n02"), context(blind_share=0.6),
        "diagnose", "n02", "60 %"),
    row("slow job with node evidence", "the job progresses",
        incident("nic_congested", STEP_TIME, ECN, suspects="n02"), context(replacements=0),
        "page", words="6.3 s against 5 s"),
    row("slow job with node evidence", "the job stands",
        incident("nic_congested", STEP_TIME, ECN, suspects="n02"), STANDS, "isolate_and_restart",
        "n02", "confidence 0.80"),
    row("slow job with node evidence", "else",
        incident("nic_congested", STEP_TIME, ECN, suspects="n02"), context(),
        "isolate_and_restart", "n02", "confidence 0.80"),
    row("parallel group of the outliers", "to evict it whole", incident("job_hang", HANG),
        context(tried("stacks", nodes=["n01", "n02"], group="tp 1")), "isolate_and_restart",
        "n01 n02", "whole 2 nodes: 85 GPU-hours lost"),
    row("parallel group of the outliers", "to evict those", incident("job_slow", STEP_TIME),
        context(tried("stacks", **PP), replacements=2), "isolate_and_restart", "n03 n04",
        "only 2 replacements free"),
    row("parallel group of the outliers", "no replacements", incident("job_hang", HANG),
        context(tried("stacks", **PP), replacements=1), "page", words="only 1 replacements free"),
    row("slow job without suspect", "for less", incident("job_slow", STEP_TIME), context(), "none",
        words="Wait 900 s", now_s=1_100.0),
    row("slow job without suspect", "else", incident("job_slow", STEP_TIME), context(), "diagnose",
        words="after 900 s"),
    row("network event", "fewer",
        incident("nic_flap", line("down", "n02"), suspects="n02", network_events=1), context(),
        "none", words="1 of 2 in 300 s"),
    row("network event", "else",
        incident("nic_flap", line("down", "n02"), suspects="n02", network_events=2), context(),
        "isolate_and_restart", "n02", "2 of 2 in 300 s"),
    row("loss spike", "yes",
        incident("loss_anomaly", line("the loss went up to 7.9 from 2.1", detector="curves")),
        context(), "page", words="7.9 from 2.1"),
    row("distributed error", "a diagnosis", incident("job_hang", *NCCL),
        context(tried("root_diag", nodes=["n09"])), "isolate_and_restart", "n09", "RootDiag"),
    row("distributed error", "ConfigCheck", incident("job_hang", *NCCL),
        context(tried("root_diag", nodes=[]), tried("config_and_net", nodes=[])), "isolate",
        " ".join(NODES), "all 16 nodes"),
    row("distributed error", "RootDiag found", incident("job_hang", *NCCL),
        context(tried("root_diag", nodes=[])), "diagnose", words="3 hosts of 16"),
    row("distributed error", "for less", incident("job_hang", *NCCL), context(), "none",
        words="wait 120 s", now_s=1_100.0),
    row("distributed error", "up to", incident("job_hang", *NCCL[:2]), STANDS,
        "isolate_and_restart", "n01 n02", "2 hosts of 16"),
    row("distributed error", "else", incident("job_hang", *NCCL), STANDS, "diagnose",
        words="3 hosts of 16"),
    row("hang without suspect", "yes", incident("job_hang", HANG), context(), "diagnose",
        words="620 s"),
    row("crash or NaN without suspect", "the stop-time checks or", CRASH,
        context(tried("checks", nodes=["n07"])), "isolate_and_restart", "n07", "n07 3000 s ago"),
    row("crash or NaN without suspect", "the dual-phase", CRASH,
        context(tried("rollback", 900.0, "i0"), tried("replay", nodes=[])), "page",
        words="3000 s ago"),
    row("crash or NaN without suspect", "it failed again after a rollback", CRASH,
        context(tried("retry", 800.0, "i0"), tried("rollback", 900.0, "i0")), "diagnose",
        words="the rollback 4100 s ago"),
    row("crash or NaN without suspect", "it failed again after a retry", CRASH,
        context(tried("checks", nodes=[]), tried("retry", worked=False)), "rollback",
        words="the retry 3000 s ago"),
    row("crash or NaN without suspect", "the stop-time checks passed", CRASH,
        context(tried("checks", nodes=[])), "restart", words="passed 3000 s ago"),
    row("crash or NaN without suspect", "it came after", CRASH,
        context(tried("eviction", 700.0, "i0", nodes=["n05"])), "diagnose",
        words="300 s after n05"),
    row("crash or NaN without suspect", "else", CRASH, context(), "diagnose", words="step 7"),
    row("error at one place", "yes",
        incident("gpu_fault", line("13 at GPC 3", "n02", "xid_13_same_place"), suspects="n02"),
        context(), "diagnose", "n02", "GPC 3"),
    row("GPU lost and job stopped", "yes",
        incident("gpu_lost", line("7 of 8 GPUs", "n02"), suspects="n02"), STANDS,
        "isolate_and_restart", "n02", "7 of 8"),
    row("uncertain machine fault", "a sign",
        incident("gpu_memory", line("Xid 63", "n02"), suspects="n02"), context(), "page",
        words="Xid 63"),
]  # fmt: skip


def taken(one: Row) -> tuple[str, str]:
    """The rung and the condition of the branch that the case takes."""
    case = Case(one.incident, one.context, POLICY, one.now_s)
    return next(
        (rung.name, branch.when)
        for rung in LADDER
        if rung.applies(case)
        for branch in rung.branches
        if branch.applies(case)
    )


@pytest.mark.parametrize("one", ROWS, ids=lambda one: f"{one.rung}: {one.when}")
def test_each_branch(one: Row) -> None:
    said = verdict(one.incident, one.context, POLICY, one.now_s)

    rung, when = taken(one)
    assert (rung, when[: len(one.when)]) == (one.rung, one.when)
    assert (said.action, said.targets) == (one.action, one.targets), said.reason
    assert one.words in said.reason
    assert said.reason.endswith(".")


def test_every_branch_of_the_table_has_its_row() -> None:
    assert {taken(one) for one in ROWS} == {
        (rung.name, branch.when) for rung in LADDER for branch in rung.branches
    }


def test_the_page_of_the_ladder_is_made_from_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m actions.policy.picture > docs/ladder.md` makes it."""
    runpy.run_path(picture.__file__, run_name="__main__")

    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("kind", get_args(Kind))
def test_no_incident_falls_off_the_ladder(kind: Kind) -> None:
    assert verdict(incident(kind), context(), POLICY, NOW).reason


# -- crash or NaN: one step after the other


def test_what_nobody_told_stays_unknown_and_the_step_that_is_due_is_asked_for_again() -> None:
    asked = Attempt(step="checks", at=2_000.0, incident="i1")
    before = Attempt(step="retry", at=900.0, incident="i0")  # asked for; nobody says it was made

    for known in (context(asked), context(before), context(before, asked)):
        assert verdict(CRASH, known, POLICY, NOW).step == "checks"


def test_a_crash_after_an_eviction_that_followed_checks_is_rolled_back() -> None:
    said = verdict(
        CRASH, context(tried("checked_eviction", 900.0, "i0", nodes=["n07"])), POLICY, NOW
    )

    assert ("rollback", "rollback") == (said.action, said.step)
    assert "the eviction that followed the checks 4100 s ago" in said.reason


def test_what_the_replay_found_goes_as_hardware() -> None:
    found = verdict(CRASH, context(tried("replay", nodes=["n13"])), POLICY, NOW)

    assert ("isolate_and_restart", ["n13"], "checked_eviction") == (
        found.action, found.targets, found.step,
    )  # fmt: skip
    assert "The dual-phase replay found n13" in found.reason


@pytest.mark.parametrize(
    ("step", "cause"),
    [("retry", "transient"), ("rollback", "user_code"), ("eviction", "hardware"),
     ("checked_eviction", "hardware")],
)  # fmt: skip
def test_the_step_that_worked_sets_the_final_cause(step: Any, cause: str) -> None:
    nodes = ["n07"] if "eviction" in step else None
    said = verdict(CRASH, context(tried(step, nodes=nodes, worked=True)), POLICY, NOW)

    assert ("none", cause) == (said.action, said.final_cause)


def test_what_worked_does_not_hide_what_came_after_it() -> None:
    """A restart stands still for a while; another node, or the same NaN again, is news."""
    evicted = context(tried("eviction", nodes=["n02"], worked=True))
    other = incident("gpu_lost", line("Xid 79", "n05"), suspects="n02 n05", certain=True)
    retried = context(tried("retry", worked=True))
    again = incident("loss_anomaly", NAN, line("the loss is NaN at step 9", onset=3_000.0))
    restarted = incident("loss_anomaly", NAN, line("no step", detector="progress", onset=3_000.0))

    assert ["n02", "n05"] == verdict(other, evicted, POLICY, NOW).targets
    assert "checks" == verdict(again, retried, POLICY, NOW).step
    assert "transient" == verdict(restarted, retried, POLICY, NOW).final_cause


def test_what_was_tried_before_something_worked_or_long_ago_says_nothing_of_a_new_crash() -> None:
    old = tried("retry", NOW - POLICY.attempts_window_s - 1.0, "i0")
    over = [tried("retry", 700.0, "i0"), tried("rollback", 800.0, "i0", worked=True)]

    assert verdict(CRASH, context(old), POLICY, NOW).step == "checks"
    assert verdict(CRASH, context(*over), POLICY, NOW).step == "checks"


# -- distributed errors


@pytest.mark.parametrize(
    "known",
    [
        context(),  # the job still progresses
        context(job_progressing=None),
        context(job_progressing=False, job_nodes=NODES[:5]),  # hardly anybody to compare with
        context(job_progressing=False, job_nodes=NODES[1:]),  # a host of another job
        context(job_progressing=False, blind_share=0.6),
    ],
)
def test_few_hosts_go_by_their_count_only_against_many_that_are_heard(known: Context) -> None:
    said = verdict(incident("job_hang", NCCL[0]), known, POLICY, NOW)

    assert ("diagnose", "root_diag") == (said.action, said.step)


def test_configcheck_and_netdiag_find_the_root_too() -> None:
    known = context(tried("root_diag", nodes=[]), tried("config_and_net", nodes=["n03"]))
    said = verdict(incident("job_hang", *NCCL), known, POLICY, NOW)

    assert ["n03"] == said.targets
    assert "ConfigCheck and NetDiag traces it to n03" in said.reason


def test_a_quarantine_holds_nodes_and_restarts_nothing() -> None:
    known = context(tried("config_and_net", nodes=[]), protected=["n16"])
    said = verdict(incident("job_hang", *NCCL), known, POLICY, NOW)

    assert ("isolate", "quarantine", NODES[:15]) == (said.action, said.step, said.targets)


# -- parallel groups


def test_a_large_job_evicts_the_group_whole_a_small_one_those_that_stand_out() -> None:
    """A wrong guess costs the whole job's GPUs once more, an eviction the evicted ones."""
    stacks = tried("stacks", **PP)
    small = verdict(incident("job_hang", HANG), context(stacks), POLICY, NOW)
    many = [f"m{number:04}" for number in range(1_200)]
    large = verdict(incident("job_hang", HANG), context(stacks, job_nodes=many), POLICY, NOW)

    assert ["n03", "n04"] == small.targets
    # 16 x 8 GPUs x 600 s + 2 x 8 x 14,400 s + (1 - 1.7 / 1.9) x 128 x 1,800 s = 92 GPU-hours
    assert "ranked 2 nodes: 92 GPU-hours lost as expected, 89 % sure" in small.reason
    assert "whole 4 nodes: 149 GPU-hours" in small.reason
    assert NODES[:4] == large.targets


def test_no_way_may_take_the_last_copy_of_a_checkpoint() -> None:
    copies = {"n01": ["n02"], "n02": ["n01"], "n03": ["n09"], "n04": ["n10"]}
    ranked = verdict(
        incident("job_hang", HANG), context(tried("stacks", **PP), copies=copies), POLICY, NOW
    )
    none = verdict(
        incident("job_hang", HANG),
        context(tried("stacks", nodes=["n01", "n02"]), copies=copies), POLICY, NOW,
    )  # fmt: skip

    assert ["n03", "n04"] == ranked.targets
    assert "the last copy of a checkpoint would go" in ranked.reason
    assert "copies survive" in ranked.reason
    assert "page" == none.action


@pytest.mark.parametrize("copies", [None, {}, {"n01": ["n02"]}])
def test_copies_of_which_nobody_knows_close_no_way_and_are_called_unknown(copies: Any) -> None:
    made = verdict(
        incident("job_hang", HANG), context(tried("stacks", **PP), copies=copies), POLICY, NOW
    )
    assert ["n03", "n04"] == made.targets
    assert 2 == made.reason.count("checkpoint copies unknown")
    assert "copies survive" not in made.reason


def test_nobody_says_who_holds_copies_and_so_the_context_does_not_know() -> None:
    assert context().copies is None


@pytest.mark.parametrize(("way", "targets"), [("whole", 4), ("ranked", 2)])
def test_the_way_can_be_set(way: Any, targets: int) -> None:
    policy = msgspec.structs.replace(POLICY, group_eviction=way)
    said = verdict(incident("job_hang", HANG), context(tried("stacks", **PP)), policy, NOW)

    assert targets == len(said.targets)
    assert f"group_eviction is {way}" in said.reason


def test_without_scores_all_of_the_group_are_alike_and_without_a_name_it_is_one() -> None:
    for scores in ([], [0.0, 0.0, 0.0, 0.0]):
        stacks = tried("stacks", nodes=NODES[:4], scores=scores)
        said = verdict(incident("job_hang", HANG), context(stacks), POLICY, NOW)
        assert "50 % sure" in said.reason
        assert "share one parallel group" in said.reason


def test_stacks_without_outliers_lead_to_the_stop_time_checks() -> None:
    said = verdict(incident("job_hang", HANG), context(tried("stacks", nodes=[])), POLICY, NOW)

    assert "checks" == said.step


def test_long_lists_of_nodes_are_cut_in_the_reason_and_not_in_the_targets() -> None:
    stacks = tried("stacks", nodes=NODES)
    policy = msgspec.structs.replace(POLICY, group_eviction="whole")
    said = verdict(incident("job_hang", HANG), context(stacks), policy, NOW)

    assert NODES == said.targets
    assert "n08 and 8 more" in said.reason
