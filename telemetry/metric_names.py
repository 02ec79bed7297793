"""What exporters and tools call the metrics of the catalogue: one row a name. Data, and its lookup.

A counter keeps its name from the driver up (`np_cnp_sent`); what differs is the prefix that each
exporter puts before it and the `_total` behind. So counters stand here bare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec


class Spelling(msgspec.Struct, frozen=True):
    """One name of a metric.

    scale       theirs times this is ours
    valid_min   in our unit, where this source prints 0 for "not supported"
    saturates   whether the row's `saturates_at` holds: wider counters go on
    anywhere    the name is unmistakable: recognised under prefixes that nobody has listed, too
    """

    name: str
    metric: str
    scale: float = 1.0
    valid_min: float | None = None
    saturates: bool = True
    anywhere: bool = True


_S = Spelling
_MIB, _MB = 1.0 / 1_048_576.0, 1e6 / 1_048_576.0
_WORD_BYTES = 4.0  # InfiniBand counts data in words of four bytes

# nvidia_gpu_exporter speaks SI units and ratios.
_NVIDIA_SMI = (
    _S("nvidia_smi_temperature_gpu", "gpu_temperature_celsius"),
    _S("nvidia_smi_temperature_memory", "gpu_memory_temperature_celsius"),
    _S("nvidia_smi_power_draw_watts", "gpu_power_watts"),
    _S("nvidia_smi_power_limit_watts", "gpu_power_limit_watts"),
    _S("nvidia_smi_energy_joules_total", "gpu_energy_joules_total"),
    _S("nvidia_smi_clocks_current_sm_clock_hz", "gpu_sm_clock_mhz", 1e-6),
    _S("nvidia_smi_clocks_current_memory_clock_hz", "gpu_memory_clock_mhz", 1e-6),
    _S("nvidia_smi_utilization_gpu_ratio", "gpu_utilization_percent", 100.0),
    _S("nvidia_smi_utilization_memory_ratio", "gpu_memory_copy_utilization_percent", 100.0),
    _S("nvidia_smi_utilization_encoder_ratio", "gpu_encoder_utilization_percent", 100.0),
    _S("nvidia_smi_utilization_decoder_ratio", "gpu_decoder_utilization_percent", 100.0),
    _S("nvidia_smi_memory_used_bytes", "gpu_framebuffer_used_mib", _MIB),
    _S("nvidia_smi_memory_free_bytes", "gpu_framebuffer_free_mib", _MIB),
    _S("nvidia_smi_memory_total_bytes", "gpu_framebuffer_total_mib", _MIB),
    _S("nvidia_smi_fan_speed_ratio", "gpu_fan_percent", 100.0),
    _S("nvidia_smi_pstate", "gpu_performance_state"),
    _S("nvidia_smi_pcie_link_gen_current", "gpu_pcie_link_generation"),
    _S("nvidia_smi_pcie_link_width_current", "gpu_pcie_link_width_lanes"),
    _S("nvidia_smi_pcie_throughput_tx_bytes_per_second", "gpu_pcie_transmit_bytes_per_second"),
    _S("nvidia_smi_pcie_throughput_rx_bytes_per_second", "gpu_pcie_receive_bytes_per_second"),
    _S("nvidia_smi_ecc_errors_corrected_volatile_total", "gpu_ecc_correctable_volatile_total"),
    _S("nvidia_smi_ecc_errors_uncorrected_volatile_total", "gpu_ecc_uncorrectable_volatile_total"),
    _S("nvidia_smi_ecc_errors_corrected_aggregate_total", "gpu_ecc_correctable_aggregate_total"),
    _S("nvidia_smi_ecc_errors_uncorrected_aggregate_total",
       "gpu_ecc_uncorrectable_aggregate_total"),
    _S("nvidia_smi_remapped_rows_correctable", "gpu_remapped_rows_correctable"),
    _S("nvidia_smi_remapped_rows_uncorrectable", "gpu_remapped_rows_uncorrectable"),
    _S("nvidia_smi_remapped_rows_failure", "gpu_row_remap_failure_state"),
    _S("nvidia_smi_remapped_rows_pending", "gpu_row_remap_pending_state"),
    _S("nvidia_smi_clocks_event_reasons_active", "gpu_throttle_reasons_mask"),
    _S("nvidia_smi_clocks_throttle_reasons_active", "gpu_throttle_reasons_mask"),
    _S("nvidia_smi_clocks_event_reasons_counters_hw_thermal_slowdown_seconds",
       "gpu_hardware_thermal_slowdown_us_total", 1e6),
    _S("nvidia_smi_clocks_event_reasons_counters_sw_thermal_slowdown_seconds",
       "gpu_software_thermal_slowdown_us_total", 1e6),
    _S("nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds",
       "gpu_power_violation_us_total", 1e6),
)  # fmt: skip

# gpu-monitoring-tools' shell exporter (dcgm-exporter 1.4 and before) had names of its own.
_DCGM_1 = (
    _S("dcgm_gpu_temp", "gpu_temperature_celsius"),
    _S("dcgm_memory_temp", "gpu_memory_temperature_celsius"),
    _S("dcgm_power_usage", "gpu_power_watts"),
    _S("dcgm_sm_clock", "gpu_sm_clock_mhz"),
    _S("dcgm_memory_clock", "gpu_memory_clock_mhz"),
    _S("dcgm_gpu_utilization", "gpu_utilization_percent"),
    _S("dcgm_mem_copy_utilization", "gpu_memory_copy_utilization_percent"),
    _S("dcgm_fb_used", "gpu_framebuffer_used_mib"),
    _S("dcgm_fb_free", "gpu_framebuffer_free_mib"),
    _S("dcgm_xid_errors", "gpu_last_xid_code"),
    _S("dcgm_pcie_replay_counter", "gpu_pcie_replay_total"),
    _S("dcgm_thermal_violation", "gpu_thermal_violation_us_total"),
    _S("dcgm_power_violation", "gpu_power_violation_us_total"),
    _S("dcgm_ecc_sbe_volatile_total", "gpu_ecc_correctable_volatile_total"),
    _S("dcgm_ecc_dbe_volatile_total", "gpu_ecc_uncorrectable_volatile_total"),
    _S("dcgm_nvlink_flit_crc_error_count_total", "gpu_nvlink_crc_flit_error_total"),
    _S("dcgm_nvlink_replay_error_count_total", "gpu_nvlink_replay_error_total"),
    _S("dcgm_nvlink_recovery_error_count_total", "gpu_nvlink_recovery_error_total"),
    _S("dcgm_nvlink_bandwidth_total", "gpu_nvlink_bandwidth_total"),
)

# AMD's exporter prints 0 W where a card cannot tell its power; a card that runs draws some.
_AMD_WATTS_MIN = 0.5
_AMD = (
    _S("gpu_average_package_power", "gpu_power_watts", valid_min=_AMD_WATTS_MIN),
    _S("gpu_package_power", "gpu_power_watts", valid_min=_AMD_WATTS_MIN),
    _S("gpu_power_usage", "gpu_power_watts", valid_min=_AMD_WATTS_MIN),
    _S("gpu_junction_temperature", "gpu_temperature_celsius"),
    _S("gpu_memory_temperature", "gpu_memory_temperature_celsius"),
    _S("gpu_usage", "gpu_utilization_percent"),
    _S("gpu_gfx_activity", "gpu_utilization_percent"),
    _S("gpu_umc_activity", "gpu_memory_copy_utilization_percent"),
    _S("gpu_used_vram", "gpu_framebuffer_used_mib", _MB),
    _S("gpu_free_vram", "gpu_framebuffer_free_mib", _MB),
    _S("gpu_total_vram", "gpu_framebuffer_total_mib", _MB),
    _S("gpu_total_memory", "gpu_framebuffer_total_mib", _MB),
    _S("gpu_ecc_correct_umc", "gpu_ecc_correctable_memory_total"),
    _S("gpu_ecc_uncorrect_umc", "gpu_ecc_uncorrectable_memory_total"),
    _S("gpu_ecc_correct_total", "gpu_ecc_correctable_volatile_total"),
    _S("gpu_ecc_uncorrect_total", "gpu_ecc_uncorrectable_volatile_total"),
    _S("pcie_replay_count", "gpu_pcie_replay_total"),
)

_ASCEND = (
    _S("npu_chip_info_temperature", "gpu_temperature_celsius"),
    _S("npu_chip_info_power", "gpu_power_watts"),
    _S("npu_chip_info_utilization", "gpu_utilization_percent"),
    _S("npu_chip_info_aicore_current_freq", "gpu_sm_clock_mhz"),
    _S("npu_chip_info_hbm_used_memory", "gpu_framebuffer_used_mib", _MB),
    _S("npu_chip_info_hbm_total_memory", "gpu_framebuffer_total_mib", _MB),
    _S("npu_chip_info_health_status", "gpu_healthy_state"),
    _S("npu_chip_info_error_code", "gpu_error_code"),
    _S("npu_chip_info_link_status", "gpu_link_up_state"),
    _S("npu_chip_info_network_status", "gpu_network_healthy_state"),
)

# Hygon's dcu-exporter as its documents name it: no real sample was seen.
_DCU = (
    _S("dcu_temp", "gpu_temperature_celsius"),
    _S("dcu_power_usage", "gpu_power_watts"),
    _S("dcu_utilizationrate", "gpu_utilization_percent"),
    _S("dcu_usedmemory_bytes", "gpu_framebuffer_used_mib", _MIB),
    _S("dcu_memorycap_bytes", "gpu_framebuffer_total_mib", _MIB),
    _S("dcu_ce_count", "gpu_ecc_correctable_volatile_total"),
    _S("dcu_ue_count", "gpu_ecc_uncorrectable_volatile_total"),
)

SPELLINGS: tuple[Spelling, ...] = (*_NVIDIA_SMI, *_DCGM_1, *_AMD, *_ASCEND, *_DCU)

# The counters of NICs and ports as the kernel's sysfs, `rdma`, `ethtool -S` and perfquery name
# them. "#" stands for the number of a priority or lane, which becomes part of the entity.
COUNTERS: tuple[Spelling, ...] = (
    _S("np_ecn_marked_roce_packets", "nic_ecn_marked_packets_total"),
    _S("rx_ecn_mark", "nic_ecn_marked_packets_total"),
    _S("received_ecn_mark", "nic_ecn_marked_packets_total"),
    _S("rx_prio#_marked", "nic_ecn_marked_packets_total"),
    _S("np_cnp_sent", "nic_cnp_sent_packets_total"),
    _S("rp_cnp_handled", "nic_cnp_handled_packets_total"),
    _S("rp_cnp_ignored", "nic_cnp_ignored_packets_total"),
    _S("rx_prio#_pause", "nic_pfc_pause_received_frames_total"),
    _S("received_prio#_pause", "nic_pfc_pause_received_frames_total"),
    _S("tx_prio#_pause", "nic_pfc_pause_sent_frames_total"),
    _S("transmitted_prio#_pause", "nic_pfc_pause_sent_frames_total"),
    _S("rx_pause_ctrl_phy", "nic_pause_received_frames_total"),
    _S("tx_pause_ctrl_phy", "nic_pause_sent_frames_total"),
    _S("rx_prio#_discards", "nic_receive_discarded_packets_total"),
    _S("rx_prio#_buf_discard", "nic_buffer_discarded_packets_total"),
    _S("rx_prio#_cong_discard", "nic_congestion_discarded_packets_total"),
    _S("rx_discards_phy", "nic_receive_discarded_packets_total"),
    _S("tx_discards_phy", "nic_transmit_discarded_packets_total", saturates=False),
    _S("port_xmit_discards", "nic_transmit_discarded_packets_total"),
    _S("port_discards_transmitted", "nic_transmit_discarded_packets_total"),
    _S("port_transmit_discards", "nic_transmit_discarded_packets_total"),
    _S("port_rcv_errors", "nic_receive_error_packets_total"),
    _S("port_errors_received", "nic_receive_error_packets_total"),
    _S("port_receive_errors", "nic_receive_error_packets_total"),
    _S("port_rcv_remote_physical_errors", "nic_receive_remote_physical_errors_total"),
    _S("port_receive_remote_physical_errors", "nic_receive_remote_physical_errors_total"),
    _S("port_rcv_switch_relay_errors", "nic_receive_switch_relay_errors_total"),
    _S("port_receive_switch_relay_errors", "nic_receive_switch_relay_errors_total"),
    _S("port_xmit_constraint_errors", "nic_transmit_constraint_errors_total"),
    _S("port_constraint_errors_transmitted", "nic_transmit_constraint_errors_total"),
    _S("port_rcv_constraint_errors", "nic_receive_constraint_errors_total"),
    _S("port_constraint_errors_received", "nic_receive_constraint_errors_total"),
    _S("local_link_integrity_errors", "nic_local_link_integrity_errors_total"),
    _S("excessive_buffer_overrun_errors", "nic_buffer_overrun_errors_total"),
    _S("link_error_recovery", "nic_link_recovery_total"),
    _S("link_downed", "nic_link_downed_total"),
    _S("link_down_events_phy", "nic_link_downed_total", saturates=False),
    _S("symbol_error", "nic_symbol_errors_total"),
    _S("rx_symbol_err_phy", "nic_symbol_errors_total", saturates=False),
    _S("rx_crc_errors_phy", "nic_receive_crc_errors_total"),
    _S("rx_err_lane_#_phy", "nic_lane_corrected_errors_total"),
    _S("rx_corrected_bits_phy", "nic_corrected_bits_total"),
    _S("vl15_dropped", "nic_management_dropped_packets_total"),
    _S("qp1_dropped", "nic_management_dropped_qp1_packets_total"),
    _S("port_xmit_wait", "nic_transmit_wait_ticks_total"),
    _S("port_transmit_wait", "nic_transmit_wait_ticks_total"),
    _S("out_of_sequence", "nic_out_of_sequence_packets_total"),
    _S("packet_seq_err", "nic_packet_sequence_errors_total"),
    _S("local_ack_timeout_err", "nic_ack_timeouts_total"),
    _S("out_of_buffer", "nic_receive_out_of_buffer_packets_total"),
    _S("rx_out_of_buffer", "nic_receive_out_of_buffer_packets_total"),
    _S("rnr_nak_retry_err", "nic_rnr_retry_errors_total"),
    _S("implied_nak_seq_err", "nic_implied_nak_errors_total"),
    _S("duplicate_request", "nic_duplicate_requests_total"),
    _S("roce_adp_retrans", "nic_adaptive_retransmissions_total"),
    _S("roce_adp_retrans_to", "nic_adaptive_retransmission_timeouts_total"),
    _S("roce_slow_restart", "nic_slow_restarts_total"),
    _S("roce_slow_restart_cnps", "nic_slow_restart_cnps_total"),
    _S("roce_slow_restart_trans", "nic_slow_restart_transitions_total"),
    _S("rx_icrc_encapsulated", "nic_receive_icrc_errors_total"),
    _S("req_cqe_error", "nic_requester_completion_errors_total"),
    _S("resp_cqe_error", "nic_responder_completion_errors_total"),
    _S("req_cqe_flush_error", "nic_requester_flush_errors_total"),
    _S("resp_cqe_flush_error", "nic_responder_flush_errors_total"),
    _S("req_remote_access_errors", "nic_requester_access_errors_total"),
    _S("resp_remote_access_errors", "nic_responder_access_errors_total"),
    _S("req_remote_invalid_request", "nic_requester_invalid_requests_total"),
    _S("resp_local_length_error", "nic_responder_length_errors_total"),
    _S("port_rcv_data", "nic_receive_bytes_total", _WORD_BYTES),
    _S("port_xmit_data", "nic_transmit_bytes_total", _WORD_BYTES),
    _S("port_data_received_bytes", "nic_receive_bytes_total"),
    _S("port_receive_data_bytes", "nic_receive_bytes_total"),
    _S("port_data_transmitted_bytes", "nic_transmit_bytes_total"),
    _S("port_transmit_data_bytes", "nic_transmit_bytes_total"),
    _S("rx_bytes_phy", "nic_receive_bytes_total"),
    _S("tx_bytes_phy", "nic_transmit_bytes_total"),
    _S("rx_prio#_bytes", "nic_priority_receive_bytes_total"),
    _S("tx_prio#_bytes", "nic_priority_transmit_bytes_total"),
    _S("port_rcv_packets", "nic_receive_packets_total"),
    _S("port_rcv_pkts", "nic_receive_packets_total"),
    _S("port_packets_received", "nic_receive_packets_total"),
    _S("rx_packets_phy", "nic_receive_packets_total"),
    _S("port_xmit_packets", "nic_transmit_packets_total"),
    _S("port_xmit_pkts", "nic_transmit_packets_total"),
    _S("port_packets_transmitted", "nic_transmit_packets_total"),
    _S("tx_packets_phy", "nic_transmit_packets_total"),
    _S("bw_in_allowance_exceeded", "nic_bandwidth_in_exceeded_packets_total"),
    _S("bw_out_allowance_exceeded", "nic_bandwidth_out_exceeded_packets_total"),
    _S("pps_allowance_exceeded", "nic_rate_exceeded_packets_total"),
)

# perfquery prints the names of the specification; some do not become sysfs's by their capitals.
_OF_PERFQUERY = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "VL15Dropped": "vl15_dropped",
    "QP1Dropped": "qp1_dropped",
}

_PREFIXES = (
    "node_infiniband_", "node_ethtool_", "node_network_", "rdma_", "infiniband_", "ethtool_",
    "ib_", "mlx5_", "hw_",
)  # fmt: skip
_DCGM = re.compile(r"(?:^|_)(DCGM_(?:FI|EXP)_[A-Z0-9_]++)$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<=prio)\d{1,2}|(?<=lane_)\d{1,2}")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BY_COUNTER = {spelling.name: spelling for spelling in COUNTERS}
_WORDS_MAX = 12


def bare_names(name: str) -> Iterator[str]:
    """Names that `name` may be under an exporter's own prefix or in another case."""
    found = _DCGM.search(name)
    if found is not None:
        yield found[1].upper()
    if name.startswith("amd_"):
        yield name.removeprefix("amd_")


def counter_of(name: str) -> Spelling | None:
    """The counter that a name ends with, whatever stands before it; None where there is none.

    A counter of a switch is not a NIC's.
    """
    if "switch_port" in name or len(name) > 200:
        return None
    bare = canonical(name)
    if bare in _BY_COUNTER:
        return _BY_COUNTER[bare]
    for prefix in _PREFIXES:
        if bare.removeprefix(prefix) in _BY_COUNTER:
            return _BY_COUNTER[bare.removeprefix(prefix)]
    words = bare.split("_")
    tails = ("_".join(words[at:]) for at in range(1, min(len(words), _WORDS_MAX)))
    found = next((_BY_COUNTER[tail] for tail in tails if tail in _BY_COUNTER), None)
    return found if found is not None and found.anywhere else None


def canonical(name: str) -> str:
    """sysfs's spelling: lower case, words joined by "_", no `_total`, "#" for a number in it."""
    known = _OF_PERFQUERY.get(name)
    if known is not None:
        return known
    spelt = _CAPITAL.sub("_", name).lower().removesuffix("_total")
    return _NUMBER.sub("#", spelt)


def numbered(name: str) -> str:
    """ "prio3" or "lane2" where the name holds one: it is part of whom the counter speaks of."""
    found = _NUMBER.search(name)
    if found is None:
        return ""
    return f"{'prio' if 'prio' in name else 'lane'}{found[0]}"
