"""Stories: findings in, incidents out, each beside the look-alike that must not become one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import pytest

from detectors.base import Sighting
from detectors.correlation import FAULTS_MAX, Correlator, CorrelatorState
from telemetry.findings import Cause, Finding, Incident, Kind, Verdict
from telemetry.settings import CorrelationSettings, EngineSettings
from tests.fakes import Book, FakeView, cluster

ECN = "nic_ecn_marked_packets_total"
CNP_HANDLED = "nic_cnp_handled_packets_total"
TEMPERATURE = "gpu_temperature_celsius"
XID = "pci:0000:c3:00"


class Desk:
    """A correlator with its book and view; sightings in, the newest incidents out."""

    def __init__(
        self, view: FakeView | None = None, rules: CorrelationSettings | None = None
    ) -> None:
        self.view = cluster() if view is None else view
        self.settings = EngineSettings(correlation=rules or CorrelationSettings())
        self.correlator = Correlator(self.settings)
        self.book = Book()
        self.newest: dict[str, Incident] = {}

    def see(self, now_s: float, *seen: Sighting) -> list[Incident]:
        found = [self.book.say(one, now_s) for one in seen]
        return self.note(self.correlator.take(found, self.view, now_s))

    def wait(self, now_s: float) -> list[Incident]:
        return self.note(self.correlator.advance(now_s, self.view))

    def note(self, said: list[Incident]) -> list[Incident]:
        for incident in said:
            before = self.newest.get(incident.id)
            assert incident.rev == (0 if before is None else before.rev + 1)
            self.newest[incident.id] = incident
        return said

    def only(self) -> Incident:
        """The one incident there is."""
        (incident,) = self.newest.values()
        return incident


def slow(onset_s: float = 100.0, active: bool = True, job: str = "j1") -> Sighting:
    return Sighting(active, "straggler", "", "", "step_time_s", onset_s, kind="job_slow", job=job,
                    text="step time 6.3 s against 5 s (+26 %)", observed=6.3, expected=5.0,
                    unit="s")  # fmt: skip


def outlier(
    node: str, metric: str = ECN, onset_s: float = 100.0, kind: Kind = "nic_congested",
    cause: Cause = "network", observed: float = 20_000.0, score: float = 8.0, active: bool = True,
) -> Sighting:  # fmt: skip
    return Sighting(active, "zscore", node, "nic:mlx5_0/1", metric, onset_s, role="evidence",
                    kind=kind, cause=cause, text=f"{metric} on {node}", observed=observed,
                    expected=0.0, score=score)  # fmt: skip


def hot(node: str, onset_s: float = 100.0, observed: float = 20.0, score: float = 8.0) -> Sighting:
    return outlier(node, TEMPERATURE, onset_s, "gpu_thermal", "hardware", observed, score)


def throttled(node: str, observed: float = 400_000.0, score: float = 8.0) -> Sighting:
    metric = "gpu_thermal_violation_us_total"
    return outlier(node, metric, 100.0, "gpu_thermal", "hardware", observed, score)


def nonzero(node: str, metric: str = ECN, onset_s: float = 100.0, active: bool = True) -> Sighting:
    return Sighting(active, "should_be_zero", node, "nic:mlx5_0/1", metric, onset_s,
                    role="evidence", kind="nic_congested", cause="network", observed=20_000.0,
                    expected=0.0, text=f"{metric} on {node} is not zero")  # fmt: skip


def fault(
    node: str, kind: Kind = "gpu_lost", onset_s: float = 100.0, metric: str = "xid_79",
    certain: bool = True, active: bool = True, events: int = 1, cause: Cause = "hardware",
) -> Sighting:  # fmt: skip
    return Sighting(active, "critical", node, XID, metric, onset_s, kind=kind, cause=cause,
                    severity="critical" if certain else "warning", certain=certain, events=events,
                    text=f"{metric} on {node}")  # fmt: skip


def silent(node: str, onset_s: float = 100.0, active: bool = True) -> Sighting:
    return Sighting(active, "silence", node, "", "last_heard_s", onset_s, kind="node_silent",
                    text=f"{node} is silent")  # fmt: skip


def of_job(kind: Kind, onset_s: float = 100.0, cause: Cause = "unknown") -> Sighting:
    return Sighting(True, "training", "", "", kind, onset_s, kind=kind, cause=cause, job="j1",
                    severity="critical", text=kind)  # fmt: skip


def echo(node: str, onset_s: float, metric: str = "xid_45") -> Sighting:
    return Sighting(True, "critical", node, XID, metric, onset_s, role="evidence",
                    kind="gpu_fault", text=f"{metric} on {node}")  # fmt: skip


def suspects(incident: Incident) -> list[str]:
    return [suspect.node or suspect.entity for suspect in incident.suspects]


def test_evidence_alone_opens_nothing() -> None:
    desk = Desk()

    assert [] == desk.see(200.0, outlier("n03"), nonzero("n04"), echo("n05", 150.0))


def test_a_slow_job_alone_is_an_incident_without_suspect() -> None:
    desk = Desk()

    (said,) = desk.see(150.0, slow())

    assert ("job:j1", "job_slow", "unknown", "j1", 0) == (
        said.scope, said.kind, said.cause, said.job, said.rev,
    )  # fmt: skip
    assert ([], 150.0, None, 0.3) == (
        said.suspects, said.opened_at, said.closed_at, said.confidence,
    )  # fmt: skip
    assert ["step_time_s"] == [line.metric for line in said.evidence]


@pytest.mark.parametrize("order", [0, 1])
def test_a_slow_job_and_a_node_s_outlier_together_name_the_node(order: int) -> None:
    desk = Desk()
    seen = [slow(), outlier("n03")]

    desk.see(150.0, seen[order])
    desk.see(700.0, seen[1 - order])

    said = desk.only()
    assert ("nic_congested", "network", ["n03"]) == (said.kind, said.cause, suspects(said))
    assert 0.65 == said.confidence
    assert ["straggler", "zscore"] == [line.detector for line in said.evidence]


def test_each_independent_kind_of_evidence_raises_the_confidence() -> None:
    desk = Desk()
    desk.see(150.0, slow(), outlier("n03"))
    one = desk.only().confidence

    desk.see(160.0, nonzero("n03", "nic_cnp_sent_packets_total"))
    two = desk.only().confidence
    desk.see(170.0, hot("n03"))

    assert one < two < desk.only().confidence <= 0.99


def test_evidence_from_long_before_or_of_another_job_names_nobody() -> None:
    view = cluster()
    view.jobs = {"j1": view.jobs["j1"][:14], "j2": view.jobs["j1"][14:]}
    desk = Desk(view)

    desk.see(3_000.0, slow(3_000.0), outlier("n03", onset_s=1_000.0), hot("n15", 3_000.0))

    assert [] == desk.only().suspects


def test_an_outlier_below_the_effect_and_a_weak_one_beside_a_strong_one_name_nobody() -> None:
    desk = Desk()

    desk.see(150.0, slow(), throttled("n05", 3.0), throttled("n06", score=2.5), throttled("n03"))

    assert ["n03"] == suspects(desk.only())


def test_a_node_that_is_merely_warm_slows_nobody() -> None:
    """Not by itself, and not beside the node that does."""
    desk = Desk()

    desk.see(150.0, slow(), hot("n05"))
    assert suspects(desk.only()) == []

    desk.see(160.0, outlier("n03"))
    assert suspects(desk.only()) == ["n03"]


def test_what_explains_is_named_before_its_symptom() -> None:
    desk = Desk()
    clock = outlier("n03", "gpu_sm_clock_mhz", 100.0, "gpu_slow", "hardware", 900.0)

    desk.see(150.0, slow(), clock, hot("n03"))

    assert "gpu_thermal" == desk.only().kind


def test_a_slow_rank_names_its_node() -> None:
    desk = Desk()
    rank = Sighting(True, "straggler", "n03", "rank:17", "compute_time_s", 90.0, role="evidence",
                    kind="gpu_slow", cause="hardware", job="j1", observed=1.4,
                    expected=1.0)  # fmt: skip

    desk.see(150.0, slow(), rank)

    assert [("n03", "rank:17")] == [(s.node, s.entity) for s in desk.only().suspects]


def test_application_errors_and_symptoms_of_a_job_name_nobody() -> None:
    desk = Desk()
    app = Sighting(True, "critical", "n03", XID, "xid_31", 100.0, role="evidence",
                   kind="gpu_fault", cause="user_code")  # fmt: skip

    desk.see(150.0, slow(), app, echo("n04", 100.0))

    assert [] == desk.only().suspects


def test_three_hosts_stand_out_and_so_none_is_sure() -> None:
    desk = Desk()

    desk.see(150.0, slow(), throttled("n01"), throttled("n09"), throttled("n12"))

    assert ["n01", "n09", "n12"] == suspects(desk.only())
    assert desk.only().confidence < 0.5


def test_mates_that_suffer_too_make_it_the_leaf_s_matter_before_anyone_is_named() -> None:
    desk = Desk()

    for node in ("n01", "n02", "n04"):
        desk.see(230.0, nonzero(node))
    desk.see(240.0, slow())
    said = desk.see(700.0, outlier("n03"))[-1]

    assert ("fabric", "network", "job:j1", ["leaf:leaf0"]) == (
        said.kind, said.cause, said.scope, suspects(said),
    )  # fmt: skip
    assert 1 == len(desk.newest)


def test_a_mate_that_suffered_long_before_is_still_a_mate_that_suffers() -> None:
    desk = Desk()

    for node in ("n01", "n02", "n04"):
        desk.see(230.0, nonzero(node))
    desk.see(5_700.0, slow(5_000.0), outlier("n03", onset_s=5_000.0))

    assert [] == [s.node for s in desk.only().suspects if s.node]


def test_two_mates_of_eight_are_no_leaf_and_mates_behind_another_leaf_do_not_count() -> None:
    desk = Desk()

    desk.see(700.0, slow(), nonzero("n01"), nonzero("n02"), nonzero("n09"), outlier("n03"))

    assert ["n03"] == suspects(desk.only())


def test_what_a_healthy_end_reflects_neither_makes_a_leaf_nor_hides_the_culprit() -> None:
    desk = Desk()
    peers = [nonzero(node, CNP_HANDLED) for node in ("n01", "n02", "n04", "n05")]

    desk.see(700.0, slow(), *peers, outlier("n04", CNP_HANDLED), outlier("n03"))

    assert ["n03"] == suspects(desk.only())


def test_a_reflected_metric_of_the_whole_leaf_alone_is_the_leaf_s() -> None:
    desk = Desk()

    desk.see(700.0, slow(), *(nonzero(f"n0{i}", CNP_HANDLED) for i in range(5)))

    assert "fabric" == desk.only().kind


def test_when_everybody_moved_at_once_nobody_is_named() -> None:
    view = FakeView(jobs=cluster().jobs)  # nobody told the leaves

    desk = Desk(view)
    desk.see(700.0, slow(), *(nonzero(f"n{i:02d}") for i in range(0, 16, 2)), outlier("n03"))
    reflected = Desk(view)
    reflected.see(700.0, slow(), *(nonzero(f"n{i:02d}", CNP_HANDLED) for i in range(0, 16, 2)))

    assert ("fleet_shift", "common_mode", []) == (
        desk.only().kind, desk.only().cause, desk.only().suspects,
    )  # fmt: skip
    assert "fleet_shift" == reflected.only().kind


def test_a_job_whose_leaves_all_suffer_moved_at_once() -> None:
    desk = Desk()

    desk.see(700.0, slow(), *(nonzero(f"n{i:02d}") for i in range(16)), outlier("n03"))

    assert "fleet_shift" == desk.only().kind


def test_a_job_with_one_node_a_leaf_needs_mates_of_other_jobs_to_blame_the_leaf() -> None:
    view = cluster()
    view.jobs = {"j1": ["n00", "n08"], "j2": view.jobs["j1"][1:8]}
    alone, shared = Desk(view), Desk(view)

    alone.see(700.0, slow(), outlier("n00"))
    shared.see(700.0, slow(), outlier("n00"), nonzero("n01"), nonzero("n02"), nonzero("n03"))

    assert ["n00"] == suspects(alone.only())
    assert ["leaf:leaf0"] == suspects(shared.only())


def test_two_jobs_slowed_by_one_leaf_are_one_incident() -> None:
    view = cluster()
    names = list(view.jobs["j1"])
    view.jobs = {"j1": names[:4] + names[8:], "j2": names[4:8]}
    desk = Desk(view)

    desk.see(300.0, slow(), slow(job="j2"))
    desk.see(700.0, *(nonzero(node) for node in names[:8]))

    merged = [i for i in desk.newest.values() if i.merged_into]
    open_ones = [i for i in desk.newest.values() if i.closed_at is None]
    assert [("fabric", ["leaf:leaf0"])] == [(i.kind, suspects(i)) for i in open_ones]
    assert [open_ones[0].id] == [i.merged_into for i in merged]


def test_suspects_once_named_stay_named_when_their_evidence_ends() -> None:
    desk = Desk()
    desk.see(700.0, slow(), outlier("n03"))
    desk.see(900.0, outlier("n03", active=False))

    assert ("nic_congested", ["n03"]) == (desk.only().kind, suspects(desk.only()))


def test_a_certain_fault_is_the_root_and_the_slow_job_its_evidence() -> None:
    desk = Desk()

    desk.see(110.0, fault("n03"))
    desk.see(200.0, slow(130.0))

    said = desk.only()
    assert ("node:n03", "gpu_lost", True, "critical", "j1") == (
        said.scope, said.kind, said.certain, said.severity, said.job,
    )  # fmt: skip
    assert ["xid_79", "step_time_s"] == [line.metric for line in said.evidence]


def test_a_certain_fault_found_later_takes_over_the_slow_job_s_incident() -> None:
    desk = Desk()
    (first,) = desk.see(150.0, slow())

    (said,) = desk.see(300.0, fault("n03", onset_s=250.0))

    assert (first.id, 1, "gpu_lost", ["n03"]) == (said.id, said.rev, said.kind, suspects(said))


def test_a_second_certain_fault_elsewhere_is_a_story_of_its_own() -> None:
    desk = Desk()
    desk.see(200.0, fault("n03"), slow(130.0))

    desk.see(300.0, fault("n09", onset_s=290.0))

    assert [["n03"], ["n09"]] == [suspects(i) for i in desk.newest.values()]


def test_echoes_on_the_node_and_at_its_peers_attach_to_the_root() -> None:
    desk = Desk()

    desk.see(110.0, fault("n03"), echo("n03", 105.0))
    desk.see(200.0, echo("n05", 150.0), nonzero("n06", "nic_ack_timeouts_total", 160.0))
    desk.see(400.0, echo("n07", 290.0))

    said = desk.only()
    assert ["n03", "n03", "n05", "n06"] == [line.node for line in said.evidence]
    assert ["n03"] == suspects(said)


def test_silence_after_a_lost_gpu_joins_it_and_alone_it_is_its_own() -> None:
    desk = Desk()

    desk.see(110.0, fault("n03"))
    desk.see(600.0, silent("n03", 500.0), silent("n09", 500.0))

    assert [("gpu_lost", ["n03"]), ("node_silent", ["n09"])] == [
        (i.kind, suspects(i)) for i in desk.newest.values()
    ]


def test_two_unrelated_faults_of_a_node_hours_apart_are_two_incidents() -> None:
    desk = Desk()

    desk.see(110.0, fault("n03", "nic_flap", 100.0, "nic_link_downed_total", False))
    desk.see(400.0, fault("n03", "storage", 390.0, "storage_event", False))

    assert 2 == len(desk.newest)


def test_nan_user_error_and_a_slow_job_are_separate_stories() -> None:
    desk = Desk()

    desk.see(150.0, of_job("loss_anomaly"), of_job("user_error", cause="user_code"), slow())

    assert ["job_slow", "loss_anomaly", "user_error"] == [i.kind for i in desk.newest.values()]


def test_an_exception_after_a_lost_gpu_is_its_echo_one_before_is_not() -> None:
    after, before = Desk(), Desk()

    after.see(110.0, fault("n03"))
    after.see(130.0, of_job("user_error", 120.0, "user_code"))
    before.see(110.0, fault("n03"))
    before.see(130.0, of_job("user_error", 90.0, "user_code"))

    assert "gpu_lost" == after.only().kind
    assert 2 == len(before.newest)


def test_link_flaps_are_counted_and_support_a_slow_job() -> None:
    desk = Desk()
    flap = fault("n03", "nic_flap", 100.0, "nic_link_downed_total", False, cause="network")

    desk.see(110.0, flap)
    one = desk.only()
    desk.see(200.0, replace(flap, events=2))
    two = desk.only()
    desk.see(300.0, slow(150.0))

    assert (1, 2) == (one.network_events, two.network_events)
    assert ("nic_flap", ["n03"], "node:n03") == (
        desk.only().kind, suspects(desk.only()), desk.only().scope,
    )  # fmt: skip
    assert "step_time_s" in [line.metric for line in desk.only().evidence]


@pytest.mark.parametrize("together", [True, False])
def test_silent_nodes_behind_one_leaf_are_the_leaf_s_incident(together: bool) -> None:
    desk = Desk()
    seen = [silent(f"n0{i}") for i in range(5)]

    for batch in [seen] if together else [[one] for one in seen]:
        desk.see(170.0, *batch)

    open_ones = [i for i in desk.newest.values() if i.closed_at is None]
    assert [("leaf:leaf0", "fabric", ["leaf:leaf0"])] == [
        (i.scope, i.kind, suspects(i)) for i in open_ones
    ]
    assert {open_ones[0].id} >= {i.merged_into for i in desk.newest.values() if i.closed_at}
    assert (1 if together else 4) == len(desk.newest)


def test_nodes_behind_one_leaf_that_are_silent_while_their_job_goes_on_are_a_telemetry_gap() -> (
    None
):
    desk = Desk()
    gap = [replace(silent(f"n0{i}"), kind="telemetry_gap", cause="telemetry") for i in range(5)]
    desk.see(170.0, *gap)

    told = [i for i in desk.newest.values() if i.closed_at is None]
    assert [("telemetry_gap", "telemetry", [])] == [(i.kind, i.cause, suspects(i)) for i in told]


def test_a_host_out_of_memory_and_the_hang_after_it_are_one_story() -> None:
    desk = Desk()
    desk.see(101.0, fault("n03", "host", 100.0, "oom_system", certain=False, cause="user_code"))
    desk.see(160.0, of_job("job_hang", 95.0))

    assert ("host", "user_code") == (desk.only().kind, desk.only().cause)


def test_a_node_whose_cpus_are_overloaded_is_named_for_a_slow_job_only() -> None:
    busy = [
        outlier(f"n{i:02d}", "host_load1", 100.0, "host", "site_software", 440.0) for i in range(16)
    ]
    one, all_, alone, little = Desk(), Desk(), Desk(), Desk()
    one.see(150.0, slow(), busy[3])
    all_.see(150.0, slow(), *busy)
    little.see(150.0, slow(), replace(busy[3], observed=40.0))

    assert [] == alone.see(150.0, busy[3])
    assert ("host", "site_software", ["n03"]) == (
        one.only().kind, one.only().cause, suspects(one.only()),
    )  # fmt: skip
    assert [] == suspects(all_.only())
    assert [] == suspects(little.only())


def test_three_silent_nodes_of_eight_stay_three() -> None:
    desk = Desk()

    desk.see(170.0, silent("n00"), silent("n01"), silent("n02"), silent("n09"))

    assert {"node_silent"} == {i.kind for i in desk.newest.values()}
    assert 4 == len(desk.newest)


def test_a_leaf_that_reboots_flaps_all_links_and_isolates_nobody() -> None:
    desk = Desk()

    desk.see(170.0, *(
        fault(f"n0{i}", "nic_flap", 100.0, "nic_link_downed_total", False, events=2,
              cause="network")
        for i in range(8)
    ))  # fmt: skip

    assert ("fabric", ["leaf:leaf0"]) == (desk.only().kind, suspects(desk.only()))


def test_a_blind_spot_of_ours_is_the_cluster_s() -> None:
    desk = Desk()
    gap = Sighting(True, "silence", "", "", "reporting_nodes", 10.0, kind="telemetry_gap",
                   cause="telemetry", severity="critical")  # fmt: skip

    (said,) = desk.see(70.0, gap)

    assert ("cluster", "telemetry_gap", "telemetry") == (said.scope, said.kind, said.cause)


def test_an_incident_closes_when_its_findings_were_clear_for_clear_s() -> None:
    desk = Desk()
    desk.see(150.0, slow())
    desk.see(500.0, slow(active=False))

    assert [] == desk.wait(1_099.0)
    (closed,) = desk.wait(1_100.0)
    assert (1_100.0, []) == (closed.closed_at, desk.wait(1_200.0))


def test_evidence_that_names_the_suspect_holds_the_incident_open() -> None:
    desk = Desk()
    desk.see(700.0, slow(), outlier("n03"))
    desk.see(800.0, slow(active=False))
    assert [] == desk.wait(2_000.0)

    desk.see(2_100.0, outlier("n03", active=False))

    assert [] == desk.wait(2_500.0)
    assert [2_700.0] == [i.closed_at for i in desk.wait(2_700.0)]


def test_it_reopens_under_its_id_within_reopen_s_and_not_after() -> None:
    desk = Desk()
    desk.see(150.0, slow())
    desk.see(500.0, slow(active=False))
    desk.wait(1_100.0)

    (again,) = desk.see(2_000.0, slow(1_950.0))
    assert ("job_slow", None, 150.0) == (again.kind, again.closed_at, again.opened_at)

    desk.see(2_100.0, slow(active=False))
    desk.wait(2_700.0)
    desk.wait(4_501.0)
    (other,) = desk.see(4_600.0, slow(4_550.0))
    assert (0, 4_600.0) == (other.rev, other.opened_at)
    assert other.id != again.id


def test_what_says_nothing_new_makes_no_revision() -> None:
    desk = Desk()
    desk.see(150.0, slow())

    assert [] == desk.see(200.0, outlier("n03", onset_s=-5_000.0))


def test_the_verdict_that_was_handed_back_is_carried_on() -> None:
    desk = Desk()
    (first,) = desk.see(150.0, slow())
    given = Verdict("diagnose", "Because.", [], "now", 150.0)
    desk.correlator.decided(msgspec.structs.replace(first, verdict=given, verdicts=[given]))
    desk.correlator.decided(msgspec.structs.replace(first, id="nobody's"))

    (said,) = desk.see(200.0, outlier("n03"))

    assert (given, [given]) == (said.verdict, said.verdicts)
    assert [said] == desk.correlator.incidents()


def test_everything_is_bounded() -> None:
    desk = Desk(rules=CorrelationSettings(incidents_max=2, evidence_max=3, findings_max=20))
    desk.see(150.0, slow(), *(outlier(f"n{i:02d}", onset_s=90.0 + i) for i in range(10)))
    assert 3 == len(desk.only().evidence)
    assert "step_time_s" in [line.metric for line in desk.only().evidence]

    desk.see(160.0, silent("n00"), silent("n09"), silent("n10"))
    assert (2, 2) == (len(desk.newest), desk.correlator.dropped)
    desk.see(170.0, silent("n00", active=False))
    desk.wait(800.0)
    desk.see(900.0, silent("n12", 850.0))
    assert 3 == len(desk.newest)


def test_a_fault_that_clears_unknown_to_us_says_nothing() -> None:
    desk = Desk()
    opened = desk.book.say(slow(), 150.0)
    cleared = msgspec.structs.replace(opened, state="clear")

    assert [] == desk.note(desk.correlator.take([cleared], desk.view, 160.0))


def test_a_slow_job_of_another_job_does_not_join_a_node_s_fault() -> None:
    desk = Desk()
    desk.see(110.0, fault("n03"))
    desk.see(150.0, slow(job="j2"))

    assert ["gpu_lost", "job_slow"] == [i.kind for i in desk.newest.values()]


def test_a_certain_fault_of_a_silent_node_unites_its_story_with_the_slow_job_s() -> None:
    desk = Desk()
    desk.see(150.0, slow())
    desk.see(200.0, silent("n03", 140.0))
    desk.see(260.0, fault("n03", onset_s=130.0))

    elder, younger = desk.newest.values()
    assert ("gpu_lost", ["n03"], None) == (elder.kind, suspects(elder), elder.closed_at)
    assert (260.0, elder.id) == (younger.closed_at, younger.merged_into)
    assert [] == desk.see(300.0, echo("n09", 2_000.0))


def test_a_story_keeps_at_most_so_many_faults() -> None:
    desk = Desk()
    ranks = [
        replace(of_job("user_error", cause="user_code"), entity=f"rank:{i}") for i in range(300)
    ]

    desk.see(150.0, *ranks)

    assert 64 == len(desk.only().evidence)
    (story,) = msgspec.convert(desk.correlator.snapshot(), CorrelatorState).stories
    assert FAULTS_MAX == len(story.faults)


def test_stories_unite_within_the_bounds_of_one() -> None:
    desk = Desk()
    names = [f"rank:{i}" for i in range(FAULTS_MAX)]
    desk.see(150.0, slow())
    desk.see(160.0, silent("n03", 140.0))
    desk.see(170.0, *(replace(slow(), entity=name) for name in names))

    desk.see(260.0, fault("n03", onset_s=130.0))

    (elder, _) = msgspec.convert(desk.correlator.snapshot(), CorrelatorState).stories
    assert FAULTS_MAX == len(elder.faults)


@pytest.mark.parametrize(("incidents_max", "leaves"), [(16, 0), (17, 2)])
def test_leaves_unite_their_nodes_where_there_is_room(incidents_max: int, leaves: int) -> None:
    desk = Desk(rules=CorrelationSettings(incidents_max=incidents_max))

    said = desk.see(170.0, *(silent(f"n{i:02d}") for i in range(16)))

    assert leaves == len([i for i in said if i.kind == "fabric"])


def test_a_cleared_fault_that_is_said_again_clears_once() -> None:
    desk = Desk()
    desk.see(150.0, slow())
    cleared = desk.book.say(slow(active=False), 500.0)
    for now_s in (500.0, 900.0):
        desk.note(desk.correlator.take([cleared], desk.view, now_s))

    assert [1_100.0] == [i.closed_at for i in desk.wait(1_100.0)]


def test_open_evidence_is_bounded_and_a_clear_of_what_was_dropped_is_no_news() -> None:
    desk = Desk(rules=CorrelationSettings(findings_max=1))
    desk.see(150.0, slow(), throttled("n03"), outlier("n05"))
    assert ["n03"] == suspects(desk.only())

    desk.see(160.0, replace(throttled("n03"), severity="critical"))
    desk.see(170.0, outlier("n05", active=False))
    assert ["n03"] == suspects(desk.only())


def test_a_fault_that_is_no_machine_s_names_nobody_for_a_slow_job() -> None:
    desk = Desk()

    desk.see(110.0, fault("n03", "host", 100.0, "oom_event", False, cause="user_code"))
    desk.see(150.0, slow())

    assert [("host", ["n03"]), ("job_slow", [])] == [
        (i.kind, suspects(i)) for i in desk.newest.values()
    ]


def test_that_a_group_is_too_small_accuses_nobody() -> None:
    desk = Desk()
    small = Sighting(True, "zscore", "n03", "", "gpu|j1|0", 100.0, role="evidence",
                     kind="telemetry_gap", cause="telemetry", job="j1")  # fmt: skip

    desk.see(150.0, slow(), small)

    assert [] == desk.only().suspects


def findings(desk: Desk) -> list[tuple[float, list[Finding]]]:
    """A day in the life, as the book tells it."""
    days: Sequence[tuple[float, Iterable[Sighting]]] = [
        (150.0, [slow(), nonzero("n03")]),
        (160.0, [fault("n09", "nic_flap", 155.0, "nic_link_downed_total", False)]),
        (170.0, [silent(f"n0{i}") for i in range(3)]),
        (180.0, [silent(f"n0{i}") for i in range(3, 6)]),
        (700.0, [outlier("n11"), hot("n11")]),
        (900.0, [slow(active=False), outlier("n11", active=False)]),
        (1_700.0, [fault("n12", onset_s=1_690.0)]),
        (1_800.0, [slow(1_750.0), *(silent(f"n0{i}", active=False) for i in range(6))]),
    ]
    return [(now_s, [desk.book.say(one, now_s) for one in seen]) for now_s, seen in days]


@pytest.mark.parametrize("cut", range(8))
def test_a_restart_changes_nothing(cut: int) -> None:
    desk = Desk()
    said: list[list[Incident]] = []
    log = findings(desk)
    for now_s, found in log:
        said.append(desk.correlator.take(found, desk.view, now_s))
        said.append(desk.correlator.advance(now_s + 650.0, desk.view))

    first, second = Desk(), Desk()
    again: list[list[Incident]] = []
    for place, (now_s, found) in enumerate(log):
        if place == cut:
            second.correlator.restore(json.loads(msgspec.json.encode(first.correlator.snapshot())))
        one = (first if place < cut else second).correlator
        again.append(one.take(found, desk.view, now_s))
        again.append(one.advance(now_s + 650.0, desk.view))

    assert said == again
