"""Healthy twins and look-alikes: what resembles a fault and must not get a node isolated."""

from __future__ import annotations

from evaluation.fault_kinds import FIXED, FaultKind, Line, Touch
from evaluation.kinds_hardware import NETWORK
from telemetry.findings import Cause, Kind

POWER_CAP_MASK = 4.0  # software power cap: usual under full load
_ECN = next(row for row in NETWORK if row.name == "ecn")
_FLAP = next(row for row in NETWORK if row.name == "flap")


def _job(name: str, text: str, kind: Kind = "job_slow", **more: object) -> FaultKind:
    values: dict[str, object] = {"cause": "user_code", "scope": "job", **more}
    return FaultKind(name=name, kind=kind, expect="none", text=text, **values)  # type: ignore[arg-type]


def _gap(name: str, text: str, cause: Cause = "telemetry", **more: object) -> FaultKind:
    return FaultKind(
        name=name, kind="telemetry_gap", cause=cause, expect="none", levels=FIXED, text=text,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


DEVICES = (
    FaultKind(name="ecn-only", kind="nic_congested", cause="network", expect="none",
              levels=_ECN.levels, move=_ECN.move, touches=_ECN.touches,
              text="the same surge without a slow job"),
    FaultKind(name="hot", kind="gpu_thermal", cause="unknown", expect="none",
              levels=(1.5, 1.0, 0.4),
              text="a GPU is hot, does not throttle, and the job is as fast as ever",
              touches=(Touch("gpu_temperature_celsius", "add", 12.0, ramp_s=90.0),
                       Touch("gpu_memory_temperature_celsius", "add", 10.0, ramp_s=90.0))),
    FaultKind(name="power-cap", kind="gpu_power", cause="unknown", expect="none",
              levels=(1.5, 1.0, 0.3), text="a GPU is at its software power cap all the time",
              touches=(Touch("gpu_throttle_reasons_mask", "set", POWER_CAP_MASK),
                       Touch("gpu_sm_clock_mhz", "times", 0.97),
                       Touch("gpu_power_violation_us_total", "steady", 300_000.0))),
    FaultKind(name="ambient", kind="fleet_shift", cause="common_mode", expect="none", scope="job",
              levels=(1.5, 1.0, 0.3), text="the hall becomes warmer, all GPUs with it",
              touches=(Touch("gpu_temperature_celsius", "add", 9.0, "all", ramp_s=600.0),
                       Touch("gpu_memory_temperature_celsius", "add", 9.0, "all", ramp_s=600.0))),
    FaultKind(name="flap-once", kind="nic_flap", cause="network", expect="none", levels=FIXED,
              pulses=_FLAP.pulses[:1], move=1.0, touches=_FLAP.touches, lines=_FLAP.lines,
              text="a port goes down once and comes back by itself"),
    FaultKind(name="management-down", kind="nic_fault", cause="network", expect="none",
              levels=FIXED, extra_port="management",
              text="a node's management port goes down, the fabric does not care",
              touches=(Touch("nic_port_state", "set", 1.0), Touch("nic_physical_state", "set", 2.0),
                       Touch("nic_link_downed_total", "count", 1.0)),
              lines=(Line("mlx5_core {nic_pci}.0 {nic}: Port: 1 Link DOWN", "nic", "warning",
                          "link_down", device="nic"),)),
    FaultKind(name="aux-port", kind="nic_fault", cause="network", expect="none", levels=FIXED,
              extra_port="aux", text="a ninth port that is meant to be down is down"),
    FaultKind(name="xid13", kind="user_error", cause="user_code", expect="none", job="restarts",
              levels=FIXED, text="an application error on one GPU, the job restarts itself",
              lines=(Line("NVRM: Xid (PCI:{pci}): 13, pid=48213, name=pt_main_thread, Graphics"
                          " Exception: ESR 0x50c730=0xc04000b 0x50c734=0x24 0x50c728=0x1f81fb60"
                          " 0x50c72c=0x1174", "xid", "warning", "app", 13, device="gpu",
                          pid=48213, process="pt_main_thread"),)),
)  # fmt: skip

JOB = (
    _job("slow-code", "the job becomes slower through its own code", slow=1.2, ranks="all"),
    _job("stage-imbalance", "one pipeline stage has more to do than the others", slow=1.2,
         ranks="all"),
    _job("phase-change", "the job enters another phase, everything shifts", kind="fleet_shift",
         slow=1.15, load=0.85, ranks="all"),
    _job("long-sequences", "longer sequences: more tokens in longer steps, the same pace",
         work=1.25, ranks="all", levels=(2.0, 1.0, 0.2)),
    _job("uneven-sequences", "sequences of uneven length: another rank is late in each step",
         slow=1.34, uneven=0.11, levels=(1.5, 1.0, 0.2)),
    _job("gc-pauses", "ranks collect garbage when they like, the steps wait for them",
         pauses=(0.25, 1.5), levels=(2.0, 1.0, 0.2)),
    _job("slow-init", "the job restarts and takes ten minutes to begin", job="restarts",
         down_s=600.0, levels=FIXED, kind="job_hang", run_s=1_500.0),
    _job("slow-first", "the job restarts, its first step takes 20 minutes", job="restarts",
         first_s=1_200.0, levels=FIXED, kind="job_hang", run_s=1_800.0),
    _job("slow-evaluation", "an evaluation takes ten minutes", phase="evaluation", pause_s=600.0,
         levels=FIXED, kind="job_hang", run_s=1_200.0),
    _job("slow-checkpoint", "a checkpoint takes 90 s", phase="checkpoint", pause_s=90.0,
         levels=FIXED, kind="job_hang", run_s=1_200.0),
    _job("loss-spike-once", "the loss is four times as high for a single step",
         kind="loss_anomaly", loss=3.8, bad_steps=1, levels=FIXED),
    _job("data-change", "the job comes to other data: the loss is higher from then on",
         kind="loss_anomaly", loss=1.25, levels=(1.3, 1.0, 0.4)),
    _job("lr-warmup", "after a restart loss and gradient norm come down from high values",
         kind="loss_anomaly", job="restarts", warms_up=True, levels=FIXED),
)  # fmt: skip

TELEMETRY = (
    _gap("agent-dead", "a node's telemetry stops, the job goes on", mute=True),
    _gap("agent-restart", "a node's agent starts anew after some seconds", outage_s=20.0,
         comeback="agent"),
    _gap("blind", "the collector is off on three of ten nodes", mute=True, share=0.3, scope="job"),
    _gap("metric-gone", "one metric vanishes everywhere", gone="gpu_power_watts", scope="job"),
    _gap("frozen", "all GPU values repeat exactly", frozen=True, scope="job"),
)  # fmt: skip
