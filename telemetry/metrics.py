"""The metric catalogue: every metric's name, unit, kind, range, bad direction and smallest effect.

A metric is recognised by what it counts, under any exporter's prefix, and is known by ours from
the edge on. Counters travel raw and are judged as rates per second. Adding a metric is adding a
row here or in `metrics_optional`.
"""

from __future__ import annotations

import msgspec

from telemetry.metric_names import SPELLINGS, Spelling, bare_names, counter_of
from telemetry.metric_row import (
    INF,
    Device,
    Direction,
    Metric,
    MetricClass,
    MetricKind,
)
from telemetry.metric_row import gpu as _gpu
from telemetry.metric_row import host as _host
from telemetry.metric_row import nic as _nic
from telemetry.metrics_optional import OPTIONAL

__all__ = [
    "BY_NAME", "BY_SOURCE_NAME", "CATALOGUE", "INF", "Device", "Direction", "Metric",
    "MetricClass", "MetricKind", "recognise",
]  # fmt: skip

# Effects: a temperature or clock within a few percent of the peers is manufacturing spread; rates
# follow the thresholds that operators of similar tools ship (port_xmit_discards 100/s,
# roce_slow_restart and port_rcv_errors 10/s); ECN 1,000/s is a tenth of the published case.
# Ranges: no GPU that works is at 0 W or 0 MHz; that is an exporter without an answer, or
# one that prints GHz. Nor has a port the state 0, by which the kernel means "no change".
_USUAL: tuple[Metric, ...] = (
    _gpu("gpu_temperature_celsius", "celsius", "performance", "DCGM_FI_DEV_GPU_TEMP",
         family="gpu_thermal", effect_min=8.0, valid_min=-20.0, valid_max=150.0),
    _gpu("gpu_memory_temperature_celsius", "celsius", "performance", "DCGM_FI_DEV_MEMORY_TEMP",
         family="gpu_thermal", effect_min=8.0, valid_min=-20.0, valid_max=150.0),
    _gpu("gpu_power_watts", "watts", "performance", "DCGM_FI_DEV_POWER_USAGE",
         bad="low", family="gpu_power", effect_min=60.0, valid_min=1.0, valid_max=2_500.0),
    _gpu("gpu_sm_clock_mhz", "MHz", "performance", "DCGM_FI_DEV_SM_CLOCK",
         bad="low", effect_min=100.0, valid_min=10.0, valid_max=5_000.0),
    _gpu("gpu_memory_clock_mhz", "MHz", "performance", "DCGM_FI_DEV_MEM_CLOCK",
         bad="low", effect_min=100.0, valid_min=10.0, valid_max=10_000.0),
    _gpu("gpu_utilization_percent", "percent", "performance", "DCGM_FI_DEV_GPU_UTIL",
         bad="low", effect_min=10.0, valid_max=100.0),
    _gpu("gpu_memory_copy_utilization_percent", "percent", "performance",
         "DCGM_FI_DEV_MEM_COPY_UTIL", bad="low", effect_min=15.0, valid_max=100.0),
    _gpu("gpu_engine_active_ratio", "ratio", "performance", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
         bad="low", effect_min=0.1, valid_max=1.0),
    _gpu("gpu_sm_active_ratio", "ratio", "performance", "DCGM_FI_PROF_SM_ACTIVE",
         bad="low", effect_min=0.1, valid_max=1.0),
    _gpu("gpu_tensor_active_ratio", "ratio", "performance", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
         bad="low", effect_min=0.05, valid_max=1.0),
    _gpu("gpu_dram_active_ratio", "ratio", "performance", "DCGM_FI_PROF_DRAM_ACTIVE",
         bad="low", effect_min=0.05, valid_max=1.0),
    _gpu("gpu_pcie_transmit_bytes_per_second", "bytes/s", "context",
         "DCGM_FI_PROF_PCIE_TX_BYTES", family="pcie_degraded", bad="none"),
    _gpu("gpu_pcie_receive_bytes_per_second", "bytes/s", "context",
         "DCGM_FI_PROF_PCIE_RX_BYTES", family="pcie_degraded", bad="none"),
    _gpu("gpu_nvlink_bandwidth_total", "MB", "context", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
         kind="counter", family="nvlink_fault", bad="none"),
    _gpu("gpu_framebuffer_used_mib", "MiB", "context", "DCGM_FI_DEV_FB_USED", bad="none",
         valid_max=4e6),
    _gpu("gpu_framebuffer_free_mib", "MiB", "context", "DCGM_FI_DEV_FB_FREE", bad="none",
         valid_max=4e6),
    _gpu("gpu_pcie_replay_total", "replays", "abnormal", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
         kind="counter", family="pcie_degraded", effect_min=1.0),
    _gpu("gpu_ecc_correctable_volatile_total", "errors", "abnormal",
         "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", kind="counter", family="gpu_memory", effect_min=10.0),
    _gpu("gpu_ecc_uncorrectable_volatile_total", "errors", "abnormal",
         "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", kind="counter", family="gpu_memory", effect_min=0.001),
    _gpu("gpu_nvlink_crc_flit_error_total", "errors", "abnormal",
         "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", kind="counter", family="nvlink_fault",
         effect_min=10.0),
    _gpu("gpu_nvlink_replay_error_total", "errors", "abnormal",
         "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", kind="counter", family="nvlink_fault",
         effect_min=1.0),
    _gpu("gpu_nvlink_recovery_error_total", "errors", "abnormal",
         "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", kind="counter", family="nvlink_fault",
         effect_min=0.1),
    _gpu("gpu_thermal_violation_us_total", "us", "abnormal", "DCGM_FI_DEV_THERMAL_VIOLATION",
         kind="counter", family="gpu_thermal", effect_min=50_000.0),
    _gpu("gpu_power_violation_us_total", "us", "context", "DCGM_FI_DEV_POWER_VIOLATION",
         kind="counter", family="gpu_power", bad="none"),
    _gpu("gpu_row_remap_failure_state", "state", "context", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
         kind="state", family="gpu_memory", bad="none", valid_max=1.0),
    _gpu("gpu_last_xid_code", "code", "context", "DCGM_FI_DEV_XID_ERRORS", kind="state",
         family="gpu_fault", bad="none", valid_max=1_000.0),
    _gpu("gpu_throttle_reasons_mask", "mask", "context", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
         "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", kind="bitmask", family="gpu_thermal", bad="none",
         valid_max=65_535.0),
    _nic("nic_ecn_marked_packets_total", "abnormal", "node_ethtool_received_ecn_mark",
         "node_ethtool_rx_ecn_mark", "node_infiniband_np_ecn_marked_roce_packets_total",
         "node_infiniband_np_ecn_marked_roce_packets", effect_min=1_000.0),
    _nic("nic_cnp_sent_packets_total", "abnormal", "node_infiniband_np_cnp_sent_total",
         "node_infiniband_np_cnp_sent", "node_ethtool_np_cnp_sent", effect_min=1_000.0),
    _nic("nic_cnp_handled_packets_total", "abnormal", "node_infiniband_rp_cnp_handled_total",
         "node_infiniband_rp_cnp_handled", "node_ethtool_rp_cnp_handled", effect_min=1_000.0),
    _nic("nic_pfc_pause_received_frames_total", "abnormal",
         "node_ethtool_received_prio3_pause", "node_ethtool_rx_prio3_pause", effect_min=1_000.0),
    _nic("nic_transmit_discarded_packets_total", "abnormal",
         "node_infiniband_port_transmit_discards_total",
         "node_infiniband_port_discards_transmitted_total", effect_min=100.0,
         family="nic_fault", saturates_at=65_535.0),
    _nic("nic_receive_error_packets_total", "abnormal",
         "node_infiniband_port_errors_received_total", effect_min=10.0, family="nic_fault",
         saturates_at=65_535.0),
    _nic("nic_out_of_sequence_packets_total", "abnormal",
         "node_infiniband_out_of_sequence_total", "node_infiniband_out_of_sequence",
         effect_min=100.0),
    _nic("nic_packet_sequence_errors_total", "abnormal",
         "node_infiniband_packet_seq_err_total", "node_infiniband_packet_seq_err",
         effect_min=10.0),
    _nic("nic_ack_timeouts_total", "abnormal", "node_infiniband_local_ack_timeout_err_total",
         "node_infiniband_local_ack_timeout_err", effect_min=1.0),
    _nic("nic_link_downed_total", "abnormal", "node_infiniband_link_downed_total",
         unit="events", effect_min=0.001, family="nic_flap", saturates_at=255.0),
    _nic("nic_symbol_errors_total", "abnormal", "node_infiniband_symbol_error_total",
         "node_ethtool_received_symbol_err_phy", unit="errors", effect_min=10.0,
         family="nic_fault", saturates_at=65_535.0),
    _nic("nic_receive_bytes_total", "context",
         "node_infiniband_port_data_received_bytes_total", unit="bytes", bad="none"),
    _nic("nic_transmit_bytes_total", "context",
         "node_infiniband_port_data_transmitted_bytes_total", unit="bytes", bad="none"),
    _host("host_load1", "processes", "performance", "node_load1", effect_min=64.0),
    _host("host_memory_available_bytes", "bytes", "context", "node_memory_MemAvailable_bytes",
          bad="none"),
)  # fmt: skip

CATALOGUE: tuple[Metric, ...] = (*_USUAL, *OPTIONAL)

BY_NAME: dict[str, Metric] = {row.name: row for row in CATALOGUE}


def _spelt(spelling: Spelling) -> Metric:
    """The row as values under another name have to be read."""
    row = BY_NAME[spelling.metric]
    return msgspec.structs.replace(
        row,
        scale=spelling.scale,
        valid_min=row.valid_min if spelling.valid_min is None else spelling.valid_min,
        saturates_at=row.saturates_at if spelling.saturates else None,
    )


BY_SOURCE_NAME: dict[str, Metric] = {
    **{spelling.name: _spelt(spelling) for spelling in SPELLINGS},
    **{name: row for row in CATALOGUE for name in row.names},
}

_NAMES_MAX = 50_000
_known: dict[str, Metric | None] = {}


def recognise(name: str) -> Metric | None:
    """The row of what an exporter calls `name`, its scale that name's; None where it is not ours.

    The exact name first, then the name without its exporter's prefix, then the counter that it ends
    with: `node_infiniband_`, `node_ethtool_`, `rdma_` and bare sysfs names are one counter.
    """
    if name in _known:
        return _known[name]
    if len(_known) >= _NAMES_MAX:
        _known.clear()
    found = _known[name] = _recognised(name)
    return found


def _recognised(name: str) -> Metric | None:
    for own in (name, *bare_names(name)):
        if own in BY_SOURCE_NAME:
            return BY_SOURCE_NAME[own]
    counter = counter_of(name)
    return _spelt(counter) if counter is not None else None
