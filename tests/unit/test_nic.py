"""NIC counters: names under any prefix, text in place of numbers, resets and wraps."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.absence import absence
from collectors.nic import FORMS, nic_objects
from detectors.kernels import counter_rates
from telemetry.metrics import BY_NAME, CATALOGUE, recognise
from tests.unit.test_exposition import mutated

LISTING = (
    b"mlx5_0/ports/1/counters/link_downed\t3\nmlx5_0/ports/1/hw_counters/np_cnp_sent\t12\n"
    b"mlx5_0/ports/1/state\t4: ACTIVE\nmlx5_0/ports/1/rate\t400 Gb/sec (4X NDR)\n"
)
TEXTS = [
    LISTING,
    b"NIC statistics:\n     rx_prio3_pause: 41927\n     rx_ecn_mark: 7\n",
    b"link mlx5_0/1 np_cnp_sent 0 out_of_buffer 135\n",
    b"# Port extended counters: Lid 1719 port 1 (CapMask: 0x5300)\nPortXmitDiscards:......20046\n",
    b"GUID               | 0x1c34da0300010540\nfan status         | ERROR\nfan#1 (rpm) | 8493\n",
    b'[{"ifindex":0,"ifname":"mlx5_0","port":1,"np_cnp_sent":12}]',
]


def objects(text: bytes) -> list[dict[str, Any]]:
    return list(nic_objects("f", [text]))


def rate(now: float, before: float, width_bits: int, rebooted: bool = False) -> float:
    new, old = np.array([[[now]]]), np.array([[[before]]])
    ends = np.array([2.0**width_bits])
    return float(counter_rates(new, old, np.ones(1), ends, np.array([rebooted]))[0, 0, 0])


@pytest.mark.parametrize(
    ("before", "now", "width", "delta"),
    [(4294967290.0, 10.0, 32, 16.0), (4294967290.0, 10.0, 64, 10.0), (1e6, 50.0, 64, 50.0),
     (1e6, 50.0, 32, 50.0), (7.0, 7.0, 64, 0.0)],
)  # fmt: skip
def test_c1_a_counter_that_falls_has_wrapped_or_was_reset_and_never_counts_down(
    before: float, now: float, width: int, delta: float
) -> None:
    assert delta == rate(now, before, width)


def test_c1_after_a_reboot_all_that_is_counted_is_new() -> None:
    assert 10.0 == rate(10.0, 4294967290.0, 32, rebooted=True)
    assert 500.0 == rate(500.0, 400.0, 64, rebooted=True)


def test_c3_text_in_place_of_a_number_is_missing_and_an_odd_name_does_no_harm() -> None:
    said = objects(
        b"mlx5_0/ports/1/counters/port_rcv_errors\tN/A (no PMA)\n"
        b"mlx5_0/ports/1/counters/odd,name\t5\n"
        b"mlx5_0/ports/1/counters/symbol_error\trubbish\n"
        b"NIC statistics:\n     rx_errors, total: 7\n"
    )
    assert (None, "not available") == (said[0]["value"], said[0]["missing"])
    assert [("odd,name", 5.0), ("rx_errors, total", 7.0)] == [
        (one["name"], one["value"]) for one in (said[1], said[3])
    ]
    assert ("rejected", "the value is no number") == (said[2]["type"], said[2]["reason"])


@pytest.mark.parametrize(
    "name",
    ["np_cnp_sent", "node_infiniband_np_cnp_sent_total", "rdma_np_cnp_sent", "ib_np_cnp_sent",
     "node_ethtool_np_cnp_sent", "some_exporter_hw_counters_np_cnp_sent_total"],
)  # fmt: skip
def test_a_counter_is_known_by_what_it_counts_under_any_prefix(name: str) -> None:
    row = recognise(name)
    assert row is not None
    assert "nic_cnp_sent_packets_total" == row.name


@pytest.mark.parametrize("name", ["infiniband_switch_port_receive_errors_total", "state", "x", ""])
def test_a_switch_s_counter_and_a_common_word_are_no_nic_s(name: str) -> None:
    assert recognise(name) is None


def test_words_of_four_bytes_and_bytes_are_told_apart_by_the_name() -> None:
    words, whole = recognise("port_rcv_data"), recognise("node_infiniband_port_data_received_bytes")
    assert words is not None
    assert whole is not None
    assert (words.name, 4.0, 1.0) == (whole.name, words.scale, whole.scale)


def test_an_8_bit_counter_at_its_end_is_missing_a_wider_one_goes_on() -> None:
    narrow = objects(b"mlx5_0/ports/1/counters/link_downed\t255\n")[0]
    wide = objects(b"     link_down_events_phy: 255\n")[0]
    assert ((None, "saturated"), 255.0) == ((narrow["value"], narrow["missing"]), wide["value"])


def test_plain_and_json_rdma_statistic_say_the_same() -> None:
    plain = objects(b"link mlx5_0/1 np_cnp_sent 12 out_of_buffer 135\n")
    data = b'[{"ifindex":0,"ifname":"mlx5_0","port":1,"np_cnp_sent":12,"out_of_buffer":135}]'
    assert plain == objects(data)


def test_a_switch_s_own_alarm_is_one() -> None:
    said = {one["name"]: one for one in objects(TEXTS[4])}
    assert said["fan status"]["alarm"]
    assert (8493.0, "0x1c34da0300010540") == (
        said["fan#1 (rpm)"]["value"], said["fan#1 (rpm)"]["entity"],
    )  # fmt: skip


def test_a19_what_an_exporter_s_default_set_lacks_is_said() -> None:
    default = {
        "gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_mhz", "gpu_memory_clock_mhz",
        "gpu_utilization_percent", "gpu_framebuffer_used_mib", "gpu_last_xid_code",
        "gpu_memory_temperature_celsius", "gpu_pcie_replay_total", "gpu_tensor_active_ratio",
    }  # fmt: skip
    said = absence(default)
    off = {need.off for need in said.off}

    assert {"thermal slowdown", "uncorrectable memory errors", "congestion marks"} <= off
    assert not {"hot memory", "Xids"} & off
    assert "Xids" in {need.off for need in absence([]).off}
    assert "Xids" not in {need.off for need in absence([], logged=True).off}
    assert "gpu_thermal_violation_us_total" in said.usual
    assert "gpu_row_remap_pending_state" in said.optional
    assert () == absence([row.name for row in CATALOGUE]).off
    assert all(name in BY_NAME for need in said.off for name in need.metrics)


def test_every_form_reads_its_own_example() -> None:
    for form in FORMS:
        first = next(other for other in FORMS if other.pattern.match(form.example))
        assert form.name == first.name


@given(st.sampled_from(TEXTS), st.integers(0, 300), st.integers(0, 7))
def test_damage_never_raises_and_always_gives_plain_objects(text: bytes, at: int, how: int) -> None:
    for said in objects(mutated(text, at, how)):
        assert {"file", "type"} <= set(said)
        msgspec.json.encode(said)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert all("type" in said for said in objects(data))


@given(st.integers(0, 100), st.integers(0, 7))
def test_nothing_behind_the_damage_is_lost(at: int, how: int) -> None:
    broken = mutated(LISTING, at, how) + b"\nmlx5_9/ports/1/counters/symbol_error\t77\n"
    assert 77.0 in [said.get("value") for said in objects(broken)]
