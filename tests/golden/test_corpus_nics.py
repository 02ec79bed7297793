"""Counters of NICs and switches from the wild: what is read in each, and what must not be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.nic import nic_objects
from tests.golden.summary import input_file, summary

GOLDEN = Path(__file__).parent / "nic"


def objects(name: str) -> list[dict[str, Any]]:
    return list(nic_objects(name, [input_file("nic", name).read_bytes()]))


def values(name: str, metric: str) -> dict[str, Any]:
    said: dict[str, Any] = summary(objects(name))["metrics"].get(metric, {})
    return said


@pytest.mark.parametrize("name", sorted(path.name[:-5] for path in GOLDEN.glob("*.json")))
def test_a_listing_from_the_wild_is_read_as_it_was_checked(name: str) -> None:
    assert json.loads((GOLDEN / f"{name}.json").read_text("utf-8")) == summary(objects(name))


def test_a_saturated_counter_says_nothing_and_a_setting_is_no_counter() -> None:
    name = "sys_class_infiniband_h100_9_hcas.tsv"
    downed = values(name, "nic_link_downed_total")
    assert (9, "saturated", 0.0) == (len(downed), downed["mlx5_1/1"], downed["mlx5_0/1"])
    settings = [one for one in objects(name) if one["name"] == "lifespan"]
    assert {("attribute", None, "12")} == {(s["type"], s["value"], s["text"]) for s in settings}
    assert {} == values(name, "nic_ecn_marked_packets_total")  # InfiniBand has no such counter


def test_data_comes_in_bytes_of_words_of_four() -> None:
    said = values("sys_class_infiniband_h100_9_hcas.tsv", "nic_receive_bytes_total")
    assert 4.0 * 230539874932483 == said["mlx5_0/1"]


def test_perfquery_names_each_port_and_counts_in_words() -> None:
    name = "ib_perfquery_0x7cfe9003009ce5b0.txt"
    said = values(name, "nic_transmit_bytes_total")
    assert {"0x7cfe9003009ce5b0/1": 4.0 * 36298026860928,
            "0x7cfe9003009ce5b0/2": 4.0 * 26006570014026} == said  # fmt: skip
    discards = values("ib_perfquery_0x506b4b03005c2740.txt", "nic_transmit_discarded_packets_total")
    assert [20046.0] == list(discards.values())


@pytest.mark.parametrize("name", ["ib_perfquery_empty.txt"])
def test_a_switch_that_does_not_answer_has_no_counters(name: str) -> None:
    assert [] == objects(name)


def test_other_cards_are_read_and_an_odd_physical_state_is_unknown() -> None:
    name = "sys_class_infiniband_procfs_mix.tsv"
    assert {"hfi1_0/1", "mlx4_0/1", "mlx4_0/2", "mlx5_0/1"} == set(values(name, "nic_port_state"))
    assert "unknown ACTIVE" == values(name, "nic_physical_state")["mlx5_0/1"]
    assert (
        "25.0 25 Gb/sec (1X EDR)" == values(name, "nic_link_rate_gigabits_per_second")["mlx5_0/1"]
    )


def test_a_bad_lane_is_seen_although_the_link_never_went_down() -> None:
    name = "ethtool_S_mlx5_bad_lane_crc.txt"
    lanes = values(name, "nic_lane_corrected_errors_total")
    assert {"lane0": 28116.0, "lane1": 0.0, "lane2": 0.0, "lane3": 17722623.0} == lanes
    assert {"": 386.0} == values(name, "nic_receive_crc_errors_total")
    assert {"": 0.0} == values(name, "nic_link_downed_total")


def test_marks_without_discards_are_congestion_control_at_work() -> None:
    name = "ethtool_S_prio3_pfc_ecn_marked.txt"
    assert {"prio3": 9147732.0} == values(name, "nic_ecn_marked_packets_total")
    assert {"prio3": 0.0} == values(name, "nic_congestion_discarded_packets_total")
    assert {"prio3": 1290418.0} == values(name, "nic_pfc_pause_sent_frames_total")
    assert {"prio3": 41927.0} == values(name, "nic_pfc_pause_received_frames_total")


def test_two_dumps_in_one_file_keep_apart_and_pfc_that_is_off_has_no_pauses() -> None:
    name = "ethtool_S_prio_before_after_byteps.txt"
    said = values(name, "nic_priority_receive_bytes_total")
    assert 136571931490.0 == said["prio0 after"] - said["prio0 before"]
    assert {} == values(name, "nic_pfc_pause_received_frames_total")


def test_absent_ecn_counters_of_a_cloud_s_nic_are_not_zero() -> None:
    name = "aws_ethtool_S_ens5_ena.txt"
    assert {} == values(name, "nic_ecn_marked_packets_total")
    assert {"": 11072.0} == values(name, "nic_bandwidth_in_exceeded_packets_total")


def test_a_bond_without_counters_is_a_failure_of_the_tool() -> None:
    (said,) = objects("node_exporter_ethtool_bond0_empty.txt")
    assert ("rejected", "the tool failed") == (said["type"], said["reason"])


def test_a_switch_s_unreadable_power_costs_only_itself_and_an_empty_status_is_unknown() -> None:
    one = {said["name"]: said for said in objects("ib_ibswinfo_test-err1.txt") if "name" in said}
    assert "PSU0 power (W)" not in one
    assert (71.0, 45.0) == (one["PSU1 power (W)"]["value"], one["temperature (C)"]["value"])
    other = {said["name"]: said for said in objects("ib_ibswinfo_test1-missing.txt")}
    assert ("empty", "empty") == (other["PSU1 status"]["missing"], other["fan#1 (rpm)"]["missing"])
    assert "temperature (C)" not in other


def test_rdma_statistic_s_pairs_are_read_for_each_link() -> None:
    name = "rdma_statistic_show_4links.txt"
    assert 135.0 == values(name, "nic_receive_out_of_buffer_packets_total")["mlx5_0/1"]
    said = values(name, "nic_responder_completion_errors_total")
    assert {"mlx5_0/1": 1009.0, "mlx5_1/1": 0.0, "mlx5_2/1": 0.0, "mlx5_3/1": 0.0} == said
