"""Exporters' and tools' texts from the wild: what is read in each, and what must not be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.exporter_forms import exporter_objects
from tests.golden.summary import input_file, summary

GOLDEN = Path(__file__).parent / "exporter"
A100 = "GPU-7099682b-a20d-2bcc-74ab-b9060454d81e"


def found(name: str) -> dict[str, Any]:
    return summary(exporter_objects(name, [input_file("exporter", name).read_bytes()]))


def values(name: str, metric: str) -> dict[str, Any]:
    said: dict[str, Any] = found(name)["metrics"].get(metric, {})
    return said


@pytest.mark.parametrize("name", sorted(path.name[:-5] for path in GOLDEN.glob("*.json")))
def test_a_text_from_the_wild_is_read_as_it_was_checked(name: str) -> None:
    assert json.loads((GOLDEN / f"{name}.json").read_text("utf-8")) == found(name)


def test_a1_not_supported_is_missing_and_no_alarm() -> None:
    name = "dcgm_1.7_k8s_sentinel_9223372036854775794.prom"
    for metric in ("gpu_ecc_uncorrectable_volatile_total", "gpu_memory_temperature_celsius"):
        assert {"not supported"} == set(values(name, metric).values())


def test_a2_a_utilisation_outside_of_0_to_100_is_a_bad_sample() -> None:
    said = values("dcgm_corrupt_util_and_blank_fp64.prom", "gpu_utilization_percent")
    assert {"GPU-0": "blank", "GPU-1": "range", "GPU-2": 97.0} == said


def test_a13_lines_without_a_value_cost_only_themselves() -> None:
    said = found("dcgm_1.4_empty_value.prom")
    assert {"gpu_temperature_celsius": {"GPU-0": 33.0}} == said["metrics"]
    assert 2 == said["types"]["rejected"]


def test_a14_mig_instances_are_told_apart_by_their_id_and_the_title_is_rejected() -> None:
    said = found("dcgm_2.x_a100_mig_2x1g5gb_2g10gb.prom")
    assert {f"{A100}/5", f"{A100}/7", f"{A100}/9"} == set(said["metrics"]["gpu_power_watts"])
    assert ["the value is no number: Active 2*1g.5gb + 2g.10gb"] == said["rejected"]


def test_a14_a_wrong_profile_label_is_no_part_of_the_key() -> None:
    said = values("dcgm_4.2_h100nvl_mig_wrong_profile.prom", "gpu_framebuffer_used_mib")
    assert ["7", "8"] == [entity.rpartition("/")[2] for entity in said]


@pytest.mark.parametrize(
    ("name", "absent", "there"),
    [("dcgm_2.x_a100_mig_4_active.prom", "gpu_utilization_percent", "gpu_engine_active_ratio"),
     ("dcgm_2.x_a100_mig_idle_1g5gb.prom", "gpu_utilization_percent", "gpu_engine_active_ratio"),
     ("dcgm_2.x_a100_mig_enabled_empty.prom", "gpu_utilization_percent", "gpu_power_watts"),
     ("nvidia_gpu_exporter__linux-x86_64__nvidia-h100-mig__590.48.01__load.prom",
      "gpu_utilization_percent", "gpu_power_watts"),
     ("nvidia_gpu_exporter__linux-x86_64__nvidia-h200-mig__590.48.01__load.prom",
      "gpu_utilization_percent", "gpu_power_watts"),
     ("nvidia_gpu_exporter__linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04__load.prom",
      "gpu_ecc_uncorrectable_volatile_total", "gpu_power_watts")],
)  # fmt: skip
def test_what_an_exporter_does_not_print_is_absent_and_not_zero(
    name: str, absent: str, there: str
) -> None:
    said = found(name)["metrics"]
    assert absent not in said
    assert said[there]


def test_the_second_scrape_of_a_file_is_read_and_marked() -> None:
    said = found("dcgm_2.x_a100_mig_disabled_1gpu_x2.prom")
    assert {A100, f"{A100} again"} == set(said["metrics"]["gpu_utilization_percent"])
    assert 3 == said["types"]["rejected"]


def test_si_units_and_ratios_come_in_the_catalogue_s_units() -> None:
    name = "nvidia_gpu_exporter__linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.prom"
    said = {metric: next(iter(by.values())) for metric, by in found(name)["metrics"].items()}
    assert (1980.0, 100.0, 631.95, 19818.0) == (
        said["gpu_sm_clock_mhz"], said["gpu_utilization_percent"], said["gpu_power_watts"],
        said["gpu_framebuffer_used_mib"],
    )  # fmt: skip


def test_ascend_s_time_stamps_of_1970_are_no_event_time() -> None:
    name = "ascend_npu_exporter__910.prom"
    objects = list(exporter_objects(name, [input_file("exporter", name).read_bytes()]))
    assert not [one for one in objects if "at" in one]
    assert {f"npu{at}": 1.0 for at in range(8)} == values(name, "gpu_healthy_state")
    assert "rejected" not in found("ascend_npu_exporter__minimal.prom")["types"]


def test_amd_s_zero_watts_is_not_supported_and_other_power_is_power() -> None:
    assert {"gpu0": "not supported"} == values(
        "amd_device_metrics_exporter_mixed_versions.prom", "gpu_power_watts"
    )
    assert [41.0] == list(values("amd_metrics_mini.prom", "gpu_power_watts").values())


def test_cpu_0_is_not_gpu_0_and_a_link_without_a_gpu_is_a_switch_s() -> None:
    name = "dcgm_4.x_entities_nvswitch_nvlink_cpu.prom"
    objects = exporter_objects(name, [input_file("exporter", name).read_bytes()])
    assert [
        ("nvswitch", "nvswitch0", "testhost"),
        ("gpu", "GPU-test-uuid-0000-0000-0000-000000000000/nvlink0", "testhost"),
        ("cpu", "cpu0", "testhost"), ("cpu", "cpucore0", "testhost"),
    ] == [(one["device"], one["entity"], one["node"]) for one in objects]  # fmt: skip


def test_old_lower_case_names_are_the_same_devices() -> None:
    said = values("dcgm_lowercase_uuid_oldlabels.prom", "gpu_engine_active_ratio")
    assert {"GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d08/1": 0.0,
            "GPU-931446e6-0413-2864-5b76-11227dcda4ae": 0.008246} == said  # fmt: skip


def test_comments_and_a_last_line_without_end_do_no_harm_a_nameless_series_costs_itself() -> None:
    said = found("dcgm_datadog_T4_mixed.prom")
    assert {"GPU-abc": 3e-06} == said["metrics"]["gpu_dram_active_ratio"]
    assert ["no label names the gpu: DCGM_FI_DEV_ROW_REMAP_FAILURE 0"] == said["rejected"]


def test_an_xid_without_a_gpu_label_is_still_an_xid() -> None:
    said = values("dcgm_xid_errors_err_code_err_msg.prom", "gpu_last_xid_code")
    assert {"GPU-aaa": 31.0, "": 45.0} == said


def test_renamed_keys_of_rocm_smi_are_no_missing_gpus() -> None:
    old, new = found("amd_rocm_smi_mi100_rocm571.json"), found("amd_rocm_smi_mi100_rocm602.json")
    assert (6, 4) == (old["types"]["gpu"], new["types"]["gpu"])
    assert set(old["metrics"]) == set(new["metrics"])
    assert [39.0, 37.0] == list(old["metrics"]["gpu_power_watts"].values())[:2]


def test_nvidia_smi_s_xml_names_mig_instances_and_reasons() -> None:
    said = found("nvidia_smi_q_x_a100_v12_schema.xml")
    gpu = "GPU-513536b6-7d19-9063-b049-1e69664bb298"
    used = said["metrics"]["gpu_framebuffer_used_mib"]
    assert {gpu: 50.0, **{f"{gpu}/{at}": 12.0 for at in (3, 4, 5, 6)}} == used
    assert {gpu: "not available"} == said["metrics"]["gpu_utilization_percent"]
    assert {gpu: 0.0} == said["metrics"]["gpu_throttle_reasons_mask"]


def test_an_old_amd_error_record_is_dated_by_itself_and_stale() -> None:
    (event,) = found("amd_cper_fatal_false_positive.log")["rest"]
    assert (1779904749.0, 1779957160.0, True, "info") == (
        event["at"], event["said_at"], event["stale"], event["severity"],
    )  # fmt: skip


def test_a_shell_script_is_no_exposition() -> None:
    assert {"rejected"} == set(
        found("nvidia_gpu_exporter__collect_error_uncooperative.sh.txt")["types"]
    )
