"""Rows of the catalogue that exporters print only where asked, or that only some of them know.

Their absence is no fault; what it switches off is said by `collectors.absence`.
"""

from __future__ import annotations

from telemetry.metric_row import Metric, MetricClass
from telemetry.metric_row import gpu as _gpu
from telemetry.metric_row import host as _host
from telemetry.metric_row import nic as _nic

_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"


def _context(name: str, unit: str, *names: str, **more: object) -> Metric:
    """Of a GPU, shown and never compared."""
    return _gpu(name, unit, "context", *names, **{"bad": "none", "optional": True, **more})


def _state(name: str, *names: str, **more: object) -> Metric:
    return _context(name, "state", *names, **{"kind": "state", "valid_max": 1.0, **more})


def _shown(name: str, *names: str, **more: object) -> Metric:
    """Of a NIC port, shown and never compared."""
    return _nic(name, "context", *names, **{"bad": "none", "optional": True, **more})


def _fault(name: str, *names: str, **more: object) -> Metric:
    """Of a NIC port, should be zero."""
    return _nic(
        name, "abnormal", *names,
        **{"family": "nic_fault", "effect_min": 10.0, "optional": True, **more},
    )  # fmt: skip


def _agent(name: str, unit: str, class_: MetricClass, *names: str, **more: object) -> Metric:
    """Of the machine, in frames of their own."""
    return _host(name, unit, class_, *names, **{"source": "host", "optional": True, **more})


_GPU = (
    _context("gpu_power_limit_watts", "watts", _DEV + "POWER_MGMT_LIMIT",
             _DEV + "ENFORCED_POWER_LIMIT", family="gpu_power", valid_max=2_500.0),
    _context("gpu_energy_joules_total", "joules", _DEV + "TOTAL_ENERGY_CONSUMPTION",
             kind="counter", scale=1e-3, family="gpu_power"),
    _context("gpu_slowdown_temperature_celsius", "celsius", _DEV + "SLOWDOWN_TEMP",
             family="gpu_thermal", valid_max=150.0),
    _context("gpu_fan_percent", "percent", _DEV + "FAN_SPEED", valid_max=200.0),
    _context("gpu_performance_state", "state", _DEV + "PSTATE", kind="state", valid_max=15.0),
    _context("gpu_encoder_utilization_percent", "percent", _DEV + "ENC_UTIL", valid_max=100.0),
    _context("gpu_decoder_utilization_percent", "percent", _DEV + "DEC_UTIL", valid_max=100.0),
    _context("gpu_framebuffer_total_mib", "MiB", _DEV + "FB_TOTAL", valid_max=4e6),
    _context("gpu_framebuffer_reserved_mib", "MiB", _DEV + "FB_RESERVED", valid_max=4e6),
    _context("gpu_framebuffer_used_ratio", "ratio", _DEV + "FB_USED_PERCENT", valid_max=1.0),
    _context("gpu_sm_occupancy_ratio", "ratio", _PROF + "SM_OCCUPANCY", valid_max=1.0),
    _context("gpu_fp64_active_ratio", "ratio", _PROF + "PIPE_FP64_ACTIVE", valid_max=1.0),
    _context("gpu_fp32_active_ratio", "ratio", _PROF + "PIPE_FP32_ACTIVE", valid_max=1.0),
    _context("gpu_fp16_active_ratio", "ratio", _PROF + "PIPE_FP16_ACTIVE", valid_max=1.0),
    _context("gpu_nvlink_transmit_bytes_per_second", "bytes/s", _PROF + "NVLINK_TX_BYTES",
             family="nvlink_fault"),
    _context("gpu_nvlink_receive_bytes_per_second", "bytes/s", _PROF + "NVLINK_RX_BYTES",
             family="nvlink_fault"),
    _context("gpu_pcie_link_generation", "generation", _DEV + "PCIE_LINK_GEN",
             family="pcie_degraded", valid_min=1.0, valid_max=10.0),
    _gpu("gpu_pcie_link_width_lanes", "lanes", "performance", _DEV + "PCIE_LINK_WIDTH",
         family="pcie_degraded", bad="low", effect_min=1.0, valid_min=1.0, valid_max=32.0,
         optional=True),
    _gpu("gpu_hardware_thermal_slowdown_us_total", "us", "abnormal", _DEV + "CLOCKS_EVENT_REASON_"
         "HW_THERM_SLOWDOWN_NS", kind="counter", scale=1e-3, family="gpu_thermal",
         effect_min=50_000.0, optional=True),
    _gpu("gpu_software_thermal_slowdown_us_total", "us", "abnormal", _DEV + "CLOCKS_EVENT_REASON_"
         "SW_THERM_SLOWDOWN_NS", kind="counter", scale=1e-3, family="gpu_thermal",
         effect_min=50_000.0, optional=True),
    _context("gpu_sync_boost_violation_us_total", "us", _DEV + "SYNC_BOOST_VIOLATION",
             kind="counter"),
    _context("gpu_board_limit_violation_us_total", "us", _DEV + "BOARD_LIMIT_VIOLATION",
             kind="counter", family="gpu_power"),
    _context("gpu_low_utilization_violation_us_total", "us", _DEV + "LOW_UTIL_VIOLATION",
             kind="counter"),
    _context("gpu_reliability_violation_us_total", "us", _DEV + "RELIABILITY_VIOLATION",
             kind="counter"),
    _context("gpu_ecc_correctable_aggregate_total", "errors", _DEV + "ECC_SBE_AGG_TOTAL",
             kind="counter", family="gpu_memory"),
    _context("gpu_ecc_uncorrectable_aggregate_total", "errors", _DEV + "ECC_DBE_AGG_TOTAL",
             kind="counter", family="gpu_memory"),
    _context("gpu_ecc_correctable_memory_total", "errors", kind="counter", family="gpu_memory"),
    _context("gpu_ecc_uncorrectable_memory_total", "errors", kind="counter", family="gpu_memory"),
    _context("gpu_retired_pages_correctable", "pages", _DEV + "RETIRED_SBE", family="gpu_memory"),
    _context("gpu_retired_pages_uncorrectable", "pages", _DEV + "RETIRED_DBE",
             family="gpu_memory"),
    _context("gpu_retired_pages_pending", "pages", _DEV + "RETIRED_PENDING", family="gpu_memory"),
    _context("gpu_remapped_rows_correctable", "rows", _DEV + "CORRECTABLE_REMAPPED_ROWS",
             family="gpu_memory"),
    _context("gpu_remapped_rows_uncorrectable", "rows", _DEV + "UNCORRECTABLE_REMAPPED_ROWS",
             family="gpu_memory"),
    _state("gpu_row_remap_pending_state", _DEV + "ROW_REMAP_PENDING", family="gpu_memory"),
    _context("gpu_nvlink_crc_data_error_total", "errors",
             _DEV + "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", kind="counter", family="nvlink_fault"),
    _state("gpu_healthy_state"),
    _state("gpu_network_healthy_state"),
    _state("gpu_link_up_state"),
    _context("gpu_error_code", "code", kind="state", family="gpu_fault"),
    # Xids within the exporter's window, one series a code: events, see collectors.gauge_events.
    _context("gpu_xid_window_events", "events", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS",
             "DCGM_EXP_XID_COUNT", kind="state", family="gpu_fault", valid_max=1e6),
    _context("gpu_xid_events_total", "events", "DCGM_EXP_XID_ERRORS_TOTAL", kind="state",
             family="gpu_fault", valid_max=1e9),
)  # fmt: skip

_NIC = (
    _shown("nic_cnp_ignored_packets_total"),
    _shown("nic_pfc_pause_sent_frames_total", unit="frames"),
    _shown("nic_pause_received_frames_total", unit="frames"),
    _shown("nic_pause_sent_frames_total", unit="frames"),
    _fault("nic_receive_discarded_packets_total", effect_min=100.0, family="nic_congested"),
    _fault("nic_buffer_discarded_packets_total", effect_min=100.0, family="nic_congested"),
    _fault("nic_congestion_discarded_packets_total", effect_min=100.0, family="nic_congested"),
    _fault("nic_receive_remote_physical_errors_total", saturates_at=65_535.0),
    _shown("nic_receive_switch_relay_errors_total"),
    _shown("nic_transmit_constraint_errors_total", saturates_at=255.0),
    _shown("nic_receive_constraint_errors_total", saturates_at=255.0),
    _shown("nic_local_link_integrity_errors_total", unit="errors", saturates_at=15.0),
    _shown("nic_buffer_overrun_errors_total", unit="errors", saturates_at=15.0),
    _fault("nic_link_recovery_total", unit="events", effect_min=0.1, saturates_at=255.0),
    _fault("nic_receive_crc_errors_total"),
    _shown("nic_lane_corrected_errors_total", unit="errors"),
    _shown("nic_corrected_bits_total", unit="bits"),
    _shown("nic_management_dropped_packets_total"),
    _shown("nic_management_dropped_qp1_packets_total"),
    _shown("nic_transmit_wait_ticks_total", unit="ticks"),
    _fault("nic_receive_out_of_buffer_packets_total", effect_min=100.0, family="nic_congested"),
    _fault("nic_rnr_retry_errors_total", unit="errors", effect_min=1.0),
    _fault("nic_implied_nak_errors_total", unit="errors"),
    _shown("nic_duplicate_requests_total"),
    _fault("nic_adaptive_retransmissions_total"),
    _fault("nic_adaptive_retransmission_timeouts_total", unit="events", effect_min=1.0),
    _fault("nic_slow_restarts_total", unit="events"),
    _shown("nic_slow_restart_cnps_total"),
    _shown("nic_slow_restart_transitions_total", unit="events"),
    _fault("nic_receive_icrc_errors_total", effect_min=1.0),
    # Completion errors rise whenever a job ends: queue pairs are flushed.
    _shown("nic_requester_completion_errors_total", unit="errors"),
    _shown("nic_responder_completion_errors_total", unit="errors"),
    _shown("nic_requester_flush_errors_total", unit="errors"),
    _shown("nic_responder_flush_errors_total", unit="errors"),
    _shown("nic_requester_access_errors_total", unit="errors"),
    _shown("nic_responder_access_errors_total", unit="errors"),
    _shown("nic_requester_invalid_requests_total", unit="errors"),
    _shown("nic_responder_length_errors_total", unit="errors"),
    _shown("nic_priority_receive_bytes_total", unit="bytes"),
    _shown("nic_priority_transmit_bytes_total", unit="bytes"),
    _shown("nic_receive_packets_total"),
    _shown("nic_transmit_packets_total"),
    # What a cloud's NIC queued or dropped because the instance is not allowed more.
    _shown("nic_bandwidth_in_exceeded_packets_total"),
    _shown("nic_bandwidth_out_exceeded_packets_total"),
    _shown("nic_rate_exceeded_packets_total"),
    _nic("nic_link_rate_gigabits_per_second", "performance",
         "node_infiniband_rate_bytes_per_second", unit="Gb/s", kind="gauge", bad="low",
         scale=8e-9, family="nic_fault", effect_min=10.0, valid_max=100_000.0, optional=True),
    _shown("nic_port_state", "node_infiniband_state_id", unit="state", kind="state",
           family="nic_fault", valid_min=1.0, valid_max=5.0),
    _shown("nic_physical_state", "node_infiniband_physical_state_id", unit="state", kind="state",
           family="nic_fault", valid_max=7.0),
)  # fmt: skip

_HOST = (
    # 0 nominal, 1 warning, 2 critical, as the sensor's own thresholds say.
    _host("host_fan_state", "state", "context", "ipmi_fan_speed_state", kind="state", bad="none",
          valid_max=2.0, optional=True),
    _host("host_power_supply_state", "state", "context", "ipmi_power_state", kind="state",
          bad="none", valid_max=2.0, optional=True),
    _host("host_memory_total_bytes", "bytes", "context", "node_memory_MemTotal_bytes", bad="none",
          optional=True),
    _host("host_boot_time_seconds", "seconds", "context", "node_boot_time_seconds", bad="none",
          optional=True),
    # The node agent's own look at the machine. Peers of a job have the same work for their CPUs and
    # disks; memory that is waited for and swap should be zero on a training node. The effects are a
    # share of all time, or 4 MB/s of swap.
    _agent("host_cpu_busy_percent", "percent", "performance", effect_min=15.0, valid_max=100.0),
    _agent("host_cpu_pressure_seconds_total", "seconds", "performance",
           "node_pressure_cpu_waiting_seconds_total", kind="counter", effect_min=0.2),
    _agent("host_memory_pressure_seconds_total", "seconds", "abnormal",
           "node_pressure_memory_stalled_seconds_total", kind="counter", effect_min=0.1),
    _agent("host_io_pressure_seconds_total", "seconds", "performance",
           "node_pressure_io_stalled_seconds_total", kind="counter", effect_min=0.3),
    _agent("host_swap_in_pages_total", "pages", "abnormal", "node_vmstat_pswpin", kind="counter",
           effect_min=1_000.0),
    _agent("host_tcp_retransmitted_segments_total", "segments", "performance",
           "node_netstat_Tcp_RetransSegs", kind="counter", effect_min=100.0),
    _agent("disk_filesystem_free_ratio", "ratio", "performance", device="disk", bad="low",
           family="storage", effect_min=0.3, valid_max=1.0),
    _agent("disk_filesystem_errors_total", "errors", "abnormal", device="disk", kind="counter",
           family="storage", effect_min=0.001),
)  # fmt: skip

OPTIONAL: tuple[Metric, ...] = (*_GPU, *_NIC, *_HOST)
