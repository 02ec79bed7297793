"""What nvidia-smi, rocm-smi and dcgmi call the metrics of the catalogue: one row a metric. Data."""

from __future__ import annotations

from dataclasses import dataclass

KB, MIB_OF_BYTES = 1_000.0, 1.0 / 1_048_576.0


@dataclass(frozen=True, slots=True)
class SmiName:
    """One metric under the names of several tools.

    csv     columns of `nvidia-smi --query-gpu`, without their unit
    xml     paths below <gpu> of `nvidia-smi -q -x`; several are added up where `added`, else the
            first that is there counts
    rocm    keys of rocm-smi's JSON (hy-smi's are alike, no real sample was seen)
    dmon    columns of `dcgmi dmon`
    scale   the printed number times this is ours; of a printed unit see `UNITS`
    """

    metric: str
    csv: tuple[str, ...] = ()
    xml: tuple[str, ...] = ()
    rocm: tuple[str, ...] = ()
    dmon: tuple[str, ...] = ()
    scale: float = 1.0
    added: bool = False


# What a printed unit is worth in the catalogue's.
UNITS = {"KB/s": KB, "B": MIB_OF_BYTES}

_VOLATILE, _AGGREGATE = "ecc_errors/volatile/", "ecc_errors/aggregate/"
NAMES: tuple[SmiName, ...] = (
    SmiName("gpu_temperature_celsius", ("temperature.gpu",), ("temperature/gpu_temp",),
            ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"), ("TMPTR",)),
    SmiName("gpu_memory_temperature_celsius", ("temperature.memory",),
            ("temperature/memory_temp",), ("Temperature (Sensor memory) (C)",), ("MMTMP",)),
    SmiName("gpu_power_watts", ("power.draw", "power.draw.average", "power.draw.instant"),
            ("gpu_power_readings/power_draw", "gpu_power_readings/average_power_draw",
             "gpu_power_readings/instant_power_draw", "power_readings/power_draw"),
            ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"),
            ("POWER",)),
    SmiName("gpu_power_limit_watts", ("enforced.power.limit", "power.limit"),
            ("gpu_power_readings/current_power_limit", "power_readings/power_limit"),
            ("Max Graphics Package Power (W)",)),
    SmiName("gpu_energy_joules_total", dmon=("TOTEC",), scale=1e-3),
    SmiName("gpu_sm_clock_mhz", ("clocks.sm", "clocks.current.sm"), ("clocks/sm_clock",),
            ("sclk clock speed:",), ("SMCLK",)),
    SmiName("gpu_memory_clock_mhz", ("clocks.mem", "clocks.current.memory", "clocks.memory"),
            ("clocks/mem_clock",), ("mclk clock speed:",), ("MMCLK",)),
    SmiName("gpu_utilization_percent", ("utilization.gpu",), ("utilization/gpu_util",),
            ("GPU use (%)", "DCU use (%)", "HCU use (%)"), ("GPUTL",)),
    SmiName("gpu_memory_copy_utilization_percent", ("utilization.memory",),
            ("utilization/memory_util",), ("GPU memory use (%)",), ("MCUTL",)),
    SmiName("gpu_encoder_utilization_percent", ("utilization.encoder",),
            ("utilization/encoder_util",)),
    SmiName("gpu_decoder_utilization_percent", ("utilization.decoder",),
            ("utilization/decoder_util",)),
    SmiName("gpu_framebuffer_used_mib", ("memory.used",), ("fb_memory_usage/used",),
            (), ("FBUSD",)),
    SmiName("gpu_framebuffer_free_mib", ("memory.free",), ("fb_memory_usage/free",),
            (), ("FBFRE",)),
    SmiName("gpu_framebuffer_total_mib", ("memory.total",), ("fb_memory_usage/total",)),
    SmiName("gpu_framebuffer_used_mib", rocm=("VRAM Total Used Memory (B)",), scale=MIB_OF_BYTES),
    SmiName("gpu_framebuffer_total_mib", rocm=("VRAM Total Memory (B)",), scale=MIB_OF_BYTES),
    SmiName("gpu_fan_percent", ("fan.speed",), ("fan_speed",), ("Fan speed (%)",)),
    SmiName("gpu_performance_state", ("pstate",), ("performance_state",)),
    SmiName("gpu_pcie_replay_total", (), ("pci/replay_counter",), ("PCIe Replay Count",)),
    SmiName("gpu_pcie_link_generation", ("pcie.link.gen.current", "pcie.link.gen.gpucurrent"),
            ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",)),
    SmiName("gpu_pcie_link_width_lanes", ("pcie.link.width.current",),
            ("pci/pci_gpu_link_info/link_widths/current_link_width",)),
    SmiName("gpu_pcie_transmit_bytes_per_second", (), ("pci/tx_util",), (), ("PCITX",)),
    SmiName("gpu_pcie_receive_bytes_per_second", (), ("pci/rx_util",), (), ("PCIRX",)),
    SmiName("gpu_nvlink_transmit_bytes_per_second", dmon=("NVLTX",)),
    SmiName("gpu_nvlink_receive_bytes_per_second", dmon=("NVLRX",)),
    SmiName("gpu_ecc_correctable_volatile_total", ("ecc.errors.corrected.volatile.total",),
            (_VOLATILE + "sram_correctable", _VOLATILE + "dram_correctable"), added=True),
    SmiName("gpu_ecc_uncorrectable_volatile_total", ("ecc.errors.uncorrected.volatile.total",),
            (_VOLATILE + "sram_uncorrectable", _VOLATILE + "sram_uncorrectable_parity",
             _VOLATILE + "sram_uncorrectable_secded", _VOLATILE + "dram_uncorrectable"),
            added=True),
    SmiName("gpu_ecc_correctable_aggregate_total", ("ecc.errors.corrected.aggregate.total",),
            (_AGGREGATE + "sram_correctable", _AGGREGATE + "dram_correctable"), added=True),
    SmiName("gpu_ecc_uncorrectable_aggregate_total", ("ecc.errors.uncorrected.aggregate.total",),
            (_AGGREGATE + "sram_uncorrectable", _AGGREGATE + "sram_uncorrectable_parity",
             _AGGREGATE + "sram_uncorrectable_secded", _AGGREGATE + "dram_uncorrectable"),
            added=True),
    SmiName("gpu_retired_pages_correctable", ("retired_pages.single_bit_ecc.count",),
            ("retired_pages/multiple_single_bit_retirement/retired_count",)),
    SmiName("gpu_retired_pages_uncorrectable", ("retired_pages.double_bit.count",),
            ("retired_pages/double_bit_retirement/retired_count",)),
    SmiName("gpu_remapped_rows_correctable", ("remapped_rows.correctable",),
            ("remapped_rows/remapped_row_corr",)),
    SmiName("gpu_remapped_rows_uncorrectable", ("remapped_rows.uncorrectable",),
            ("remapped_rows/remapped_row_unc",)),
    SmiName("gpu_row_remap_pending_state", ("remapped_rows.pending",),
            ("remapped_rows/remapped_row_pending",)),
    SmiName("gpu_row_remap_failure_state", ("remapped_rows.failure",),
            ("remapped_rows/remapped_row_failure",)),
    SmiName("gpu_throttle_reasons_mask",
            ("clocks_throttle_reasons.active", "clocks_event_reasons.active")),
    SmiName("gpu_hardware_thermal_slowdown_us_total", dmon=("CLKHWTHNS",), scale=1e-3),
    SmiName("gpu_software_thermal_slowdown_us_total", dmon=("CLKSWTHNS",), scale=1e-3),
    SmiName("gpu_power_violation_us_total", dmon=("CLKPCNS",), scale=1e-3),
    SmiName("gpu_last_xid_code", dmon=("XIDER",)),
    SmiName("gpu_engine_active_ratio", dmon=("GRACT",)),
    SmiName("gpu_sm_active_ratio", dmon=("SMACT",)),
    SmiName("gpu_sm_occupancy_ratio", dmon=("SMOCC",)),
    SmiName("gpu_tensor_active_ratio", dmon=("TENSO",)),
    SmiName("gpu_dram_active_ratio", dmon=("DRAMA",)),
)  # fmt: skip

BY_CSV = {name: row for row in NAMES for name in row.csv}
BY_DMON = {name: row for row in NAMES for name in row.dmon}

# The bit of each reason word; before driver 535 they are "throttle", since then "event" reasons.
REASON_BITS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
    "sync_boost": 0x10, "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80, "display_clocks_setting": 0x100,
}  # fmt: skip
