"""Schedulers' texts from the wild: what is read in each, and what must not be.

Where a test states a fact of its own, it is what was known of the text before it was read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus_api import is_answer, read_answers
from collectors.slurm import read_slurm

GOLDEN = Path(__file__).parent / "scheduler"
DATA = Path(__file__).parents[1] / "data" / "scheduler"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "formats"
NAMES = sorted(
    path.name for path in DATA.iterdir() if path.name != "prometheus_api_empty_matrix.json"
)
# Contracts of services that are written to, not texts that are read.
OF_THE_ACTION_SERVICE = (
    "alertmanager_webhook_v4.json", "pagerduty_answers.jsonl", "pagerduty_facts.md",
    "pagerduty_trigger_example.json",
)  # fmt: skip

Flat = dict[str, Any]


def objects(name: str) -> list[Flat]:
    return list(read_slurm(name, [(DATA / name).read_bytes()]))


def of_type(name: str, *types: str) -> list[Flat]:
    return [one for one in objects(name) if one["type"] in types]


def nodes(name: str) -> dict[str, Flat]:
    return {one["name"]: one for one in of_type(name, "node")}


def jobs(name: str) -> dict[tuple[str, str], Flat]:
    return {(one["id"], one["step"]): one for one in of_type(name, "job")}


def listing(name: str) -> Flat:
    (found,) = of_type(name, "listing")
    return found


def page(name: str) -> list[Flat]:
    """What a person can check: what is empty left out, equal neighbours folded."""
    shown: list[Flat] = []
    for one in objects(name):
        row = {key: _short(key, value) for key, value in one.items() if value not in EMPTY}
        row.pop("file")
        bare = {key: value for key, value in row.items() if key not in ("name", "names")}
        last = shown[-1] if shown else {}
        if row["type"] in ("node", "answer") and bare == {
            key: value for key, value in last.items() if key not in ("name", "names")
        }:
            last["names"] = [*last.get("names", [last.pop("name", "")]), row["name"]]
        else:
            shown.append(row)
    for row in shown:
        names = row.get("names", [])
        if len(names) > 16:
            row["names"] = {"count": len(names), "first": names[:3], "last": names[-1]}
    return shown


EMPTY: tuple[Any, ...] = (None, "", [], False, {})


def _short(key: str, value: Any) -> Any:
    if key == "conditions":
        return {one["type"]: f"{one['status']} {one['health']}" for one in value}
    if key == "nodes" and len(value) > 16:
        return {"count": len(value), "first": value[:3], "last": value[-1]}
    if key == "text":
        return value[:120]
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_text_from_the_wild_is_read_as_it_was_checked(name: str) -> None:
    assert json.loads((GOLDEN / f"{name}.json").read_text("utf-8")) == page(name)


def test_every_recorded_text_has_its_golden_or_is_another_services() -> None:
    if not CORPUS.is_dir():
        pytest.skip("no corpus lies beside the checkout")
    recorded = {path.name for path in CORPUS.iterdir()}
    assert recorded == {path.name for path in DATA.iterdir()} | set(OF_THE_ACTION_SERVICE)
    for name in recorded - set(OF_THE_ACTION_SERVICE):
        assert (CORPUS / name).read_bytes() == (DATA / name).read_bytes()


@pytest.mark.parametrize("name", OF_THE_ACTION_SERVICE)
def test_a_contract_of_the_action_service_is_of_the_documented_shape(name: str) -> None:
    if not CORPUS.is_dir():
        pytest.skip("no corpus lies beside the checkout")
    text = (CORPUS / name).read_text("utf-8")
    if name.endswith(".jsonl"):
        assert all({"status", "retry"} <= json.loads(row).keys() for row in text.splitlines())
    elif name.startswith("alertmanager"):
        said = json.loads(text)
        assert said["version"] == "4"
        assert said["alerts"][0]["endsAt"] == "0001-01-01T00:00:00Z"
    elif name.endswith(".json"):
        assert {"routing_key", "event_action", "payload"} <= json.loads(text).keys()
    else:
        assert text


# -- slurmrestd and --json


def test_a_node_that_is_drained_and_one_that_still_runs_a_job_are_told_apart() -> None:
    drained = nodes("slurmrestd_24.05_v0.0.41_node_drain.json")["cn146"]
    draining = nodes("slurmrestd_24.05_v0.0.41_node_draining.json")["cn1"]
    down = nodes("slurmrestd_24.05_v0.0.41_node_down.json")["cn026"]
    assert ("drained", "ECC memory error", "root") == (
        drained["drain"], drained["reason"], drained["reason_by"],
    )  # fmt: skip
    assert "draining" == draining["drain"]
    assert ("DOWN", None, "CPU dead", False) == (
        down["state"], down["drain"], down["reason"], down["usable"],
    )  # fmt: skip


def test_an_answer_with_errors_is_no_answer_whatever_their_number() -> None:
    (said,) = objects("slurmrestd_24.05_v0.0.41_node_unfound.json")
    assert "rejected" == said["type"]
    assert "Failure to query node" in said["reason"]


def test_an_expired_token_is_unknown_and_never_no_jobs() -> None:
    name = "slurmrestd_25.11_jwt_expired.json"
    assert [] == of_type(name, "job")
    assert not listing(name)["complete"]
    assert "authentication" in listing(name)["reason"]
    assert ["jobs unknown: Unable to query jobs: Protocol authentication error (1007)"] == [
        one["reason"] for one in of_type(name, "rejected")
    ]


def test_a_wrong_version_in_the_path_is_no_missing_node() -> None:
    (said,) = objects("slurmrestd_25.11_not_found.txt")
    assert "rejected" == said["type"]
    assert "API version" in said["reason"]


def test_only_status_200_says_something_of_the_cluster() -> None:
    said = {one["name"]: one for one in objects("slurmrestd_25.11_http_status.json")}
    assert 64 == len(said)
    assert 511 == said["slurm-jwt-expired-token"]["status"]
    assert {False} == {one["usable"] for one in said.values() if one["status"] != 200}


def test_of_six_nodes_one_is_drained_one_down_and_four_are_usable() -> None:
    name = "slurmrestd_24.11_v0.0.41_nodes.json"
    said = nodes(name).values()
    assert 6 == len(said)
    assert 1 == sum(one["drain"] == "drained" for one in said)
    assert 1 == sum(one["state"] == "DOWN" for one in said)
    assert 4 == sum(one["usable"] is True for one in said)
    assert listing(name)["complete"]


def test_v0_0_38_hides_drain_in_a_list_of_its_own() -> None:
    said = nodes("slurmrestd_22.05_v0.0.38_nodes.json")
    out = [one for one in said.values() if one["drain"] == "drained"]
    assert 2 == len(out)
    assert {("Kill task failed", "kill_task", False)} == {
        (one["reason"], one["reason_class"], one["usable"]) for one in out
    }
    assert {"ALLOCATED"} == {one["state"] for one in said.values() if one["usable"]}


def test_an_empty_list_of_nodes_is_no_cluster_without_nodes() -> None:
    (said,) = objects("slurmrestd_empty_nodes.json")
    assert ("listing", 0, False) == (said["type"], said["count"], said["complete"])


def test_sinfo_of_21_08_keeps_flags_beside_the_state() -> None:
    said = nodes("slurm_21.08_sinfo_json.json")
    assert 4 == len(said)
    assert {None} == {one["gpus"] for one in said.values()}


def test_a_running_jobs_end_is_its_time_limit_and_not_an_end() -> None:
    running = jobs("slurm_squeue_json.json")["26515966", ""]
    assert ("RUNNING", ["cs75"], 1684114921.0, None) == (
        running["state"], running["nodes"], running["start"], running["end"],
    )  # fmt: skip
    pending = jobs("slurm_squeue_json.json")["58948420", ""]
    assert ("PENDING", [], False) == (pending["state"], pending["nodes"], pending["holds_nodes"])
    done = jobs("slurmrestd_22.05_v0.0.38_jobs.json")["23772", ""]
    assert ("COMPLETED", 1723463525.0) == (done["state"], done["end"])


def test_a_bare_node_without_an_envelope_is_a_node() -> None:
    said = nodes("slurmrestd_v0.0.44_node_soperator_h100.json")["worker-1"]
    assert (True, 1, "") == (said["usable"], said["gpus"], said["reason"])
    assert [] == of_type("slurmrestd_v0.0.44_node_soperator_h100.json", "listing")


def test_a_node_silent_since_boot_is_out_by_the_controllers_word() -> None:
    said = nodes("slurm_scontrol_show_node_25.11_down.json")["compute-0"]
    assert ("DOWN+DYNAMIC_NORM", "not_responding", "slurm", ["node-2"]) == (
        said["state"], said["reason_class"], said["reason_by"], said["aliases"],
    )  # fmt: skip


# -- text


def test_a_line_of_blanks_does_not_end_a_record_and_values_hold_signs() -> None:
    said = nodes("slurm_scontrol_show_node_gres_lower.txt")["node-102-68"]
    assert ("drained", "gres/gpu count reported lower than configured (0 < 1)", "slurm", 1) == (
        said["drain"], said["reason"], said["reason_by"], said["gpus"],
    )  # fmt: skip


def test_a_node_that_stands_there_once_per_partition_is_one_node() -> None:
    wide = nodes("slurm_20.11_sinfo_wide.txt")
    assert ["node0201", "node1537", "node4180"] == list(wide)
    assert "IDLE+DRAIN+NOT_RESPONDING" == wide["node0201"]["state"]
    assert None is wide["node1537"]["reason_at"]
    lines = nodes("slurm_sinfo_json_lines_fallback.txt")
    assert ["cs156", "cs25", "cs31", "cs53"] == list(lines)
    assert 5 == len(lines["cs25"]["partitions"])


def test_drained_for_maintenance_is_planned() -> None:
    said = nodes("slurm_sinfo_padded_structured.txt")["node2654"]
    assert ("IDLE+DRAIN+MAINT_RESERVATION", 8, 0) == (
        said["state"], said["gpus"], said["gpus_used"],
    )  # fmt: skip


def test_host_lists_are_expanded_and_suffixes_are_flags() -> None:
    said = nodes("slurm_sinfo_states_suffixes.txt")
    draining = [
        name for name, one in said.items()
        if "gpu" in one["partitions"] and one["drain"] == "draining"
    ]  # fmt: skip
    assert draining == [
        "c002", "c004", "c008", "c009", "c010", "c012", "c016", "c024", "c025", "c026", "c027",
        "c028",
    ]  # fmt: skip
    assert "REBOOT_REQUESTED" in said["c002"]["state"]
    assert ["debug", "idle"] == said["e001"]["partitions"]
    assert "FAIL+NOT_RESPONDING" == said["f005"]["state"]


def test_sinfo_r_cuts_reasons_at_20_characters_and_lists_only_some_nodes() -> None:
    name = "slurm_sinfo_R_truncated.txt"
    said = nodes(name)
    assert [True, False] == [one["reason_cut"] for one in said.values()]
    assert ["health_check", "kill_task"] == [one["reason_class"] for one in said.values()]
    assert not listing(name)["complete"]


def test_a_reason_is_no_verdict_over_a_gpu_and_none_is_ours() -> None:
    said = objects("slurm_reason_strings.txt")
    assert 13 == len(said)
    classes = {one["reason"]: one["reason_class"] for one in said}
    assert "kill_task" == classes["Kill task failed"]
    assert "not_responding" == classes["Not responding"]
    assert "rebooted" == classes["Node unexpectedly rebooted"]
    assert "ours" not in classes.values()


# -- sacct


def test_a_record_on_many_lines_is_one_record() -> None:
    for name in ("slurm_sacct_one_multiline.txt", "slurm_sacct_fake_line_break.txt"):
        assert [("200131", "0"), ("201729", ""), ("201844", ""), ("201729", "batch")] == list(
            jobs(name)
        )
        assert 32 == len(jobs(name)["201844", ""]["nodes"])
        assert [] == of_type(name, "rejected")


def test_broken_bytes_cost_a_character() -> None:
    said = of_type("slurm_sacct_invalid_utf8.txt", "job")
    assert 11 == len(said)
    assert "\ufffdorted" == said[-1]["name"]


def test_a_row_of_too_few_columns_is_counted_and_never_shifted() -> None:
    name = "slurm_sacct_with_invalid_lines.txt"
    assert [] == of_type(name, "job")
    assert 1 == len(of_type(name, "rejected"))
    assert not listing(name)["complete"]


# -- what changes of nodes are answered


def test_refusals_are_told_apart_by_whether_to_try_again() -> None:
    said = objects("slurm_update_errors.txt")
    assert ["permission", "state_unknown", "state_transition", "unreachable", "state_transition",
            "state_transition", "state_transition"] == [one["class"] for one in said]  # fmt: skip
    assert [False, False, False, True, False, False, False] == [one["try_again"] for one in said]
    assert ["compute001", "nid001000", "nid001000"] == [one["node"] for one in said[4:]]
    assert None is said[5]["at"]  # its time stamp is malformed


def test_a_node_drained_by_somebody_else_was_resumed_by_the_tool() -> None:
    said = of_type("slurm_nhc_wrong_resume.log", "marked")
    assert ["kept", "offline", "online"] == [one["mark"] for one in said]
    assert {"wn-1-30"} == {one["node"] for one in said}
    assert "ADMIN SHUTDOWN" in said[0]["reason"]


def test_one_old_line_found_at_every_run_is_one_finding() -> None:
    said = objects("slurm_nhc_xid63_not_drained.log")
    assert [[63], []] == [one["codes"] for one in said]
    assert [2, 2] == [one["count"] for one in said]


# -- Kubernetes


def test_no_whole_gpu_in_mixed_mig_mode_is_no_lost_gpu() -> None:
    for name, parts in (
        ("k8s_node_a100_mig_mixed.yaml", {"1g.5gb": 3, "2g.10gb": 1}),
        ("k8s_node_a100_mig_7g.yaml", {"7g.40gb": 1}),
    ):
        (said,) = objects(name)
        assert (1, 0, parts) == (said["gpus"], said["gpus_withheld"], said["mig"])
        assert said["usable"] is True


def test_unreachable_without_a_cordon_is_not_usable() -> None:
    *_, said = objects("k8s_node_unreachable_describe.txt")
    assert ("p100", False, False) == (said["name"], said["usable"], said["cordoned"])


def test_unknown_is_neither_true_nor_false() -> None:
    (said,) = objects("k8s_node_conditions_unknown.txt")
    assert {"unknown"} == {one["health"] for one in said["conditions"]}
    assert {81.0} == {one["changed_at"] - one["heartbeat_at"] for one in said["conditions"]}


def test_a_condition_with_an_old_heartbeat_is_unknown_whatever_it_says() -> None:
    (said,) = objects("k8s_node_conditions_partly_stale.txt")
    health = {one["type"]: (one["status"], one["health"]) for one in said["conditions"]}
    assert ("False", "unknown") == health["MemoryPressure"] == health["DiskPressure"]
    assert ("Unknown", "unknown") == health["Ready"]


def test_a_health_event_names_its_gpu_three_ways_and_a_healthy_one_clears_it() -> None:
    (ill,) = objects("k8s_nvsentinel_health_event_xid119.json")
    (well,) = objects("k8s_nvsentinel_healthy_event.json")
    assert (["119"], 0, "0000:03:00", 2, False, True) == (
        ill["codes"], ill["gpu_index"], ill["pci"], ill["action"], ill["healthy"], ill["fatal"],
    )  # fmt: skip
    assert ill["gpu_uuid"].startswith("GPU-455d8f70")
    assert ([], True, ill["check"], ill["gpu_index"]) == (
        well["codes"], well["healthy"], well["check"], well["gpu_index"],
    )  # fmt: skip


def test_a_line_of_condition_messages_may_name_several_faults() -> None:
    said = objects("k8s_nvsentinel_condition_messages.txt")
    assert ["DCGM_FR_PCI_REPLAY_RATE", "44", "45", "GPU_TEMP_HW_SLOWDOWN_VIOLATION", "163"] == [
        one["codes"][0] for one in said
    ]
    assert {0} == {one["gpu_index"] for one in said}


def test_an_eviction_that_a_budget_refuses_is_said_once_with_its_count() -> None:
    (said,) = objects("k8s_drain_output_pdb.txt")
    assert ("disruption_budget", True, 2) == (said["class"], said["try_again"], said["count"])


# -- Prometheus


def test_an_unknown_metric_is_no_data_neither_zero_nor_an_error() -> None:
    data = (DATA / "prometheus_api_empty_matrix.json").read_bytes()
    assert is_answer(data)
    assert [] == list(read_answers(data, "x"))
