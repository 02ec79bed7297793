"""Faults of GPUs, NVLink, PCIe, power, NICs, switches, disks and hosts."""

from __future__ import annotations

from evaluation.fault_kinds import FIXED, FaultKind, Line, Touch

THERMAL_MASK = 64.0  # hardware thermal slowdown
POWER_BRAKE_MASK = 128.0  # hardware power brake: the power supply asks for it
_SLOW_CLOCK = (
    Touch("gpu_sm_clock_mhz", "times", 0.8),
    Touch("gpu_power_watts", "times", 0.85),
)
_XID_PROCESS = "pid='<unknown>', name=<unknown>"


def _xid(
    code: int, text: str, severity: str = "critical", class_: str = "", **more: object
) -> Line:
    line = f"NVRM: Xid (PCI:{{pci}}): {code}, {text}"
    return Line(line, "xid", severity, class_, code, device="gpu", **more)  # type: ignore[arg-type]


def _link_down(after_s: float = 0.0) -> Line:
    text = "mlx5_core {nic_pci}.0 {nic}: Port: 1 Link DOWN"
    return Line(text, "nic", "warning", "link_down", after_s=after_s, device="nic")


GPU = (
    FaultKind(name="xid79", kind="gpu_lost", cause="hardware", expect="isolate", job="hangs",
              levels=FIXED, lost=True, text="a GPU falls off the bus, the job hangs",
              lines=(_xid(79, f"{_XID_PROCESS}, GPU has fallen off the bus.", class_="bus"),)),
    FaultKind(name="thermal", kind="gpu_thermal", cause="hardware", expect="isolate", slow=1.2,
              ranks="unit", levels=(1.25, 1.0, 0.4),
              text="a GPU is hot and slows down, and the job with it",
              touches=(Touch("gpu_temperature_celsius", "add", 24.0, ramp_s=90.0),
                       Touch("gpu_memory_temperature_celsius", "add", 10.0, ramp_s=90.0),
                       Touch("gpu_sm_clock_mhz", "times", 0.72),
                       Touch("gpu_power_watts", "times", 0.8),
                       Touch("gpu_throttle_reasons_mask", "set", THERMAL_MASK),
                       Touch("gpu_thermal_violation_us_total", "steady", 280_000.0))),
    FaultKind(name="gpu-clock", kind="gpu_slow", cause="hardware", expect="isolate", slow=1.2,
              told_kinds=("gpu_power",), ranks="unit", levels=(1.5, 1.0, 0.3), touches=_SLOW_CLOCK,
              text="a GPU runs at a low clock without being hot"),
    FaultKind(name="slow-rank", kind="gpu_slow", cause="hardware", expect="isolate", slow=1.25,
              ranks="unit", levels=(2.0, 1.0, 0.3),
              text="one rank computes longer, and no device metric says why"),
    FaultKind(name="power-brake", kind="gpu_power", cause="hardware", expect="isolate", slow=1.25,
              told_kinds=("gpu_slow", "gpu_thermal"), ranks="unit", levels=(1.5, 1.0, 0.3),
              text="the power supply brakes a GPU",
              touches=(Touch("gpu_sm_clock_mhz", "times", 0.7),
                       Touch("gpu_power_watts", "times", 0.6),
                       Touch("gpu_throttle_reasons_mask", "set", POWER_BRAKE_MASK))),
    FaultKind(name="nvlink", kind="nvlink_fault", cause="hardware", expect="isolate", slow=1.2,
              ranks="unit", levels=(3.0, 1.0, 0.1), text="an NVLink repeats and loses packets",
              touches=(Touch("gpu_nvlink_crc_flit_error_total", "rate", 400.0, busy=True),
                       Touch("gpu_nvlink_replay_error_total", "rate", 30.0, busy=True),
                       Touch("gpu_nvlink_recovery_error_total", "rate", 1.0, busy=True),
                       Touch("gpu_nvlink_bandwidth_total", "scale", 0.7))),
    FaultKind(name="ecc-storm", kind="gpu_memory", cause="hardware", expect="page",
              levels=(10.0, 1.0, 0.05),
              text="a storm of corrected memory errors, the job does not feel it",
              touches=(Touch("gpu_ecc_correctable_volatile_total", "rate", 460.0),)),
    FaultKind(name="ecc-uncorrectable", kind="gpu_memory", cause="hardware", expect="isolate",
              levels=FIXED, job="exits", text="memory that no spare row can replace",
              touches=(Touch("gpu_ecc_uncorrectable_volatile_total", "count", 1.0),
                       Touch("gpu_row_remap_failure_state", "set", 1.0),
                       Touch("gpu_last_xid_code", "set", 64.0)),
              lines=(_xid(48, f"{_XID_PROCESS}, An uncorrectable double bit error (DBE) has been"
                          " detected on GPU in the framebuffer at physAddr 0x7fdf0de80 partition 5,"
                          " subpartition 1", class_="memory"),
                     _xid(64, f"{_XID_PROCESS}, Row Remapper: Error recording new row.",
                          class_="memory", after_s=0.4))),
    FaultKind(name="xid119", kind="gpu_fault", cause="hardware", expect="isolate", levels=FIXED,
              told_causes=("site_software",), job="hangs",
              text="a GPU's system processor does not answer, again every 6 s",
              touches=(Touch("gpu_last_xid_code", "set", 119.0),),
              lines=(_xid(119, "pid=48213, name=pt_main_thread, Timeout after 6s of waiting for RPC"
                          " response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)"
                          " (0x20802a02 0x4).", class_="firmware", pid=48213,
                          process="pt_main_thread", every_s=6.0, times=100),)),
    FaultKind(name="xid94", kind="gpu_memory", cause="hardware", expect="isolate", job="restarts",
              levels=FIXED, run_s=3_000.0,
              text="contained memory errors that come back on one GPU",
              touches=(Touch("gpu_last_xid_code", "set", 94.0),),
              lines=(_xid(94, f"{_XID_PROCESS}, Contained: SM (0x1). RST: No, D-RST: No",
                          severity="warning", class_="memory", every_s=480.0, times=6),)),
    FaultKind(name="driver-hang", kind="gpu_fault", cause="hardware", expect="isolate",
              told_kinds=("gpu_lost", "host", "telemetry_gap", "job_hang"), job="hangs",
              told_causes=("site_software", "unknown"), levels=FIXED, mute_source="gpu",
              text="a node's GPU driver answers nobody any more",
              lines=(Line("INFO: task nv_queue:2431 blocked for more than 120 seconds.", "os",
                          class_="hung_task", after_s=122.0, every_s=122.0, times=4,
                          pid=2431, process="nv_queue"),)),
    FaultKind(name="pcie", kind="pcie_degraded", cause="hardware", expect="isolate", slow=1.25,
              ranks="unit", levels=(1.5, 1.0, 0.1),
              text="a GPU's PCIe link runs at half its width and repeats packets",
              touches=(Touch("gpu_pcie_replay_total", "rate", 40.0),
                       Touch("gpu_pcie_link_width_lanes", "set", 8.0),
                       Touch("gpu_pcie_transmit_bytes_per_second", "times", 0.5),
                       Touch("gpu_pcie_receive_bytes_per_second", "times", 0.5))),
)  # fmt: skip

NETWORK = (
    FaultKind(name="ecn", kind="nic_congested", cause="network", expect="isolate", slow=1.26,
              levels=(2.0, 1.0, 0.2), move=0.999,
              text="one of two uplinks loses packets silently, the other is congested",
              touches=(Touch("nic_ecn_marked_packets_total", "rate", 20_000.0, "partner", True),
                       Touch("nic_cnp_sent_packets_total", "rate", 12_000.0, "partner", True))),
    FaultKind(name="leaf", kind="fabric", cause="network", expect="page", slow=1.3, scope="leaf",
              levels=(2.0, 1.0, 0.2), text="all nodes behind one leaf switch are congested",
              touches=(Touch("nic_ecn_marked_packets_total", "rate", 20_000.0, "all", True),
                       Touch("nic_cnp_sent_packets_total", "rate", 12_000.0, "all", True))),
    FaultKind(name="nic-loss", kind="nic_congested", cause="network", expect="isolate", slow=1.25,
              told_kinds=("nic_fault",), levels=(3.0, 1.0, 0.1),
              text="a port loses packets while no switch marks any (ECN stays 0)",
              touches=(Touch("nic_rnr_retry_errors_total", "rate", 25.0, busy=True),
                       Touch("nic_adaptive_retransmissions_total", "rate", 150.0, busy=True),
                       Touch("nic_out_of_sequence_packets_total", "rate", 900.0, busy=True),
                       Touch("nic_packet_sequence_errors_total", "rate", 120.0, busy=True))),
    FaultKind(name="nic-down", kind="nic_fault", cause="network", expect="isolate", slow=1.5,
              told_kinds=("nic_flap",), levels=FIXED, move=1.0,
              text="a port goes down and stays down, its bond partner carries all",
              touches=(Touch("nic_link_downed_total", "count", 1.0),
                       Touch("nic_port_state", "set", 1.0),
                       Touch("nic_physical_state", "set", 2.0)),
              lines=(_link_down(),)),
    FaultKind(name="flap", kind="nic_flap", cause="network", expect="isolate", levels=FIXED,
              slow=1.1, pulses=((0.0, 12.0), (150.0, 12.0)), move=1.0,
              text="a port goes down twice in five minutes",
              touches=(Touch("nic_link_downed_total", "count", 1.0),), lines=(_link_down(),)),
    FaultKind(name="flap-slow", kind="nic_flap", cause="network", expect="isolate", levels=FIXED,
              pulses=((0.0, 12.0), (1_500.0, 12.0), (3_000.0, 12.0)), move=1.0, run_s=4_200.0,
              text="a port goes down three times within hours",
              touches=(Touch("nic_link_downed_total", "count", 1.0),), lines=(_link_down(),)),
    FaultKind(name="switch-down", kind="fabric", cause="network", expect="page", scope="leaf",
              levels=FIXED, job="hangs", told_kinds=("nic_flap", "nic_fault"),
              text="a leaf switch dies: all ports behind it are down",
              touches=(Touch("nic_link_downed_total", "count", 1.0, "all"),
                       Touch("nic_port_state", "set", 1.0, "all"),
                       Touch("nic_physical_state", "set", 2.0, "all")),
              lines=(_link_down(),)),
)  # fmt: skip

HOST = (
    FaultKind(name="silent", kind="node_silent", cause="hardware", expect="isolate", job="hangs",
              told_causes=("unknown",), mute=True, levels=FIXED,
              text="a whole node stops, and the job with it"),
    FaultKind(name="nvme", kind="storage", cause="hardware", expect="isolate", levels=FIXED,
              job="exits", text="an NVMe disk dies",
              lines=(Line("nvme nvme0: controller is down; will reset: CSTS=0xffffffff,"
                          " PCI_STATUS=0x10", "storage", "critical", "nvme_down", device="disk"),
                     Line("I/O error, dev nvme0n1, sector 32545872 op 0x0:(READ) flags 0x80700"
                          " phys_seg 1 prio class 2", "storage", "critical", "io_error",
                          after_s=1.0, every_s=3.0, times=5, device="disk"))),
    FaultKind(name="readonly-fs", kind="storage", cause="hardware", expect="isolate", levels=FIXED,
              job="exits", text="a file system becomes read-only after a disk error",
              lines=(Line("EXT4-fs (nvme0n1): I/O error while writing superblock", "storage",
                          "critical", "fs_error", device="disk"),
                     Line("EXT4-fs (nvme0n1): Remounting filesystem read-only", "storage",
                          "critical", "fs_read_only", after_s=0.3, device="disk"))),
    FaultKind(name="oom", kind="host", cause="user_code", expect="page", levels=FIXED, job="exits",
              told_kinds=("user_error",), text="the host has no memory left and kills the trainer",
              touches=(Touch("host_memory_available_bytes", "times", 0.002),),
              lines=(Line("Out of memory: Killed process 48213 (pt_main_thread)"
                          " total-vm:1823000000kB, anon-rss:1790000000kB, file-rss:100kB,"
                          " shmem-rss:0kB, UID:0 pgtables:9400000kB oom_score_adj:0", "oom",
                          "warning", "system", pid=48213, process="pt_main_thread"),)),
    FaultKind(name="cpu-overload", kind="host", cause="site_software", expect="isolate", slow=1.3,
              told_kinds=("gpu_slow",), told_causes=("hardware", "user_code", "unknown"),
              ranks="node", levels=(1.5, 1.0, 0.2),
              text="foreign processes take the CPUs of a node, all its ranks wait for them",
              touches=(Touch("host_load1", "times", 20.0),)),
    FaultKind(name="disk-full", kind="storage", cause="site_software", expect="page", levels=FIXED,
              told_kinds=("host", "user_error", "job_hang"), job="exits",
              told_causes=("hardware", "user_code", "unknown"), text="a node's disk is full",
              failure=("storage", "OSError: [Errno 28] No space left on device:"
                       " '/checkpoints/pretrain/iter_0000100/__3_0.distcp'")),
    FaultKind(name="mount-lost", kind="host", cause="site_software", expect="page", levels=FIXED,
              told_kinds=("storage", "job_hang"), told_causes=("hardware", "network", "unknown"),
              job="hangs", text="a node loses its network file system",
              lines=(Line("nfs: server 10.0.0.5 not responding, timed out", "os", "warning",
                          "nfs", every_s=180.0, times=6),)),
    FaultKind(name="reboot", kind="node_silent", cause="hardware", expect="isolate", levels=FIXED,
              told_causes=("unknown",), job="restarts", down_s=400.0, outage_s=240.0,
              comeback="boot", renames=True,
              text="a node reboots under its job; its ports have other names afterwards"),
)  # fmt: skip
