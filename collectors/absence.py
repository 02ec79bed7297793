"""Which metrics of the catalogue nobody sends, and what therefore cannot be seen. Pure.

Said once at the start: an exporter's default set lacks half of what detectors could use, and an
operator who does not know believes himself watched.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from telemetry.metrics import CATALOGUE


@dataclass(frozen=True, slots=True)
class Need:
    """What is blind without any of `metrics`, and the exporter's setting that shows them.

    logged   a kernel log tells the same
    """

    off: str
    detectors: tuple[str, ...]
    metrics: tuple[str, ...]
    remedy: str
    logged: bool = False


NEEDS: tuple[Need, ...] = (
    Need("Xids", ("critical",),
         ("gpu_last_xid_code", "gpu_xid_window_events", "gpu_xid_events_total"),
         "add DCGM_FI_DEV_XID_ERRORS to dcgm-exporter's counters", logged=True),
    Need("thermal slowdown", ("zscore", "should_be_zero"),
         ("gpu_thermal_violation_us_total", "gpu_hardware_thermal_slowdown_us_total"),
         "add DCGM_FI_DEV_THERMAL_VIOLATION"),
    Need("hot memory", ("zscore",), ("gpu_memory_temperature_celsius",),
         "add DCGM_FI_DEV_MEMORY_TEMP"),
    Need("uncorrectable memory errors", ("zscore", "should_be_zero"),
         ("gpu_ecc_uncorrectable_volatile_total",), "add DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    Need("memory rows that wait for a reset or have none left", ("critical",),
         ("gpu_row_remap_pending_state", "gpu_row_remap_failure_state"),
         "add DCGM_FI_DEV_ROW_REMAP_PENDING and DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    Need("errors of NVLink", ("zscore", "should_be_zero"),
         ("gpu_nvlink_crc_flit_error_total", "gpu_nvlink_replay_error_total",
          "gpu_nvlink_recovery_error_total"),
         "add DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL and its like"),
    Need("a degraded PCIe link", ("zscore", "should_be_zero"),
         ("gpu_pcie_replay_total", "gpu_pcie_link_width_lanes"),
         "add DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    Need("idle tensor cores", ("progress", "zscore"), ("gpu_tensor_active_ratio",),
         "add DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
    Need("silent RDMA", ("progress",), ("nic_transmit_bytes_total", "nic_receive_bytes_total"),
         "run node_exporter with its infiniband collector"),
    Need("congestion marks", ("zscore", "should_be_zero"),
         ("nic_ecn_marked_packets_total", "nic_cnp_sent_packets_total",
          "nic_cnp_handled_packets_total"),
         "send the hw_counters of /sys/class/infiniband"),
    Need("retransmission", ("zscore", "should_be_zero"),
         ("nic_packet_sequence_errors_total", "nic_ack_timeouts_total",
          "nic_out_of_sequence_packets_total"),
         "send the hw_counters of /sys/class/infiniband"),
    Need("link flaps", ("critical",), ("nic_link_downed_total",),
         "run node_exporter with its infiniband collector", logged=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Absence:
    """What nobody sent.

    usual, optional   names of catalogue rows, in its order
    off               what cannot be seen
    """

    usual: tuple[str, ...]
    optional: tuple[str, ...]
    off: tuple[Need, ...]


def absence(seen: Collection[str], logged: bool = False) -> Absence:
    """What is missing beside the catalogue names that were `seen`, with a value or null.

    logged   whether kernel logs are read
    """
    missing = [row for row in CATALOGUE if row.name not in seen]
    return Absence(
        usual=tuple(row.name for row in missing if not row.optional),
        optional=tuple(row.name for row in missing if row.optional),
        off=tuple(
            need
            for need in NEEDS
            if not (logged and need.logged) and not any(name in seen for name in need.metrics)
        ),
    )
