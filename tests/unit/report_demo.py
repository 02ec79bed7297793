"""Reports for the renderers' tests: a realistic one, and single incidents with chosen fields."""

from __future__ import annotations

import math
import random
import sys

from console.model import IncidentView, KernelLine, MetricPlot, Report, StepPlot
from console.report import render
from telemetry.findings import Evidence, Finding, Incident, Kind, Suspect, Verdict

START = 1_772_370_000.0  # 2026-03-01 13:00:00 UTC
ONSET = START + 2_700.0
TICK_S = 15.0


def incident(kind: Kind = "nic_congested", **changes: object) -> Incident:
    """A congested NIC that slows a job, with `changes`."""
    values: dict[str, object] = {
        "id": "5f2d0c9be1a7443c", "rev": 3, "scope": "node:gpu-a017", "opened_at": ONSET + 600,
        "closed_at": None, "job": "llm-70b", "cause": "network", "kind": kind,
        "severity": "critical", "confidence": 0.934, "certain": False,
        "suspects": [Suspect("gpu-a017", "nic:mlx5_3/1", 0.93)], "evidence": evidence(),
        "verdict": verdict(), "verdicts": [],
    }  # fmt: skip
    return Incident(**{**values, **changes})  # type: ignore[arg-type]


def verdict(**changes: object) -> Verdict:
    """Isolate gpu-a017 and restart, with `changes`."""
    values: dict[str, object] = {
        "action": "isolate_and_restart", "targets": ["gpu-a017"], "when": "at_checkpoint",
        "reason": "the job is slow (+26 %) and one node's ECN rate stands above λ+2δ for 10 min",
        "at": ONSET + 660, "rung": "network_event",
    }  # fmt: skip
    return Verdict(**{**values, **changes})  # type: ignore[arg-type]


def evidence() -> list[Evidence]:
    """The step time and the ECN rate."""
    return [
        Evidence("straggler", "step_time_s", 6.302, 5.0, "s", ONSET, "steps take 26 % longer"),
        Evidence(
            "zscore", "nic_ecn_marked_packets_total", 18_234.5, 212.0, "packets/s", ONSET + 15,
            "beyond λ+2δ of 31 peers at every tick of 10 min", "gpu-a017", "nic:mlx5_3/1",
        ),
    ]  # fmt: skip


def finding(**changes: object) -> Finding:
    """Evidence that opened nothing."""
    values: dict[str, object] = {
        "id": "aa", "rev": 0, "state": "open", "role": "evidence", "detector": "zscore",
        "kind": "gpu_thermal", "cause": "hardware", "severity": "info", "node": "gpu-a003",
        "entity": "gpu:GPU-5c1e", "job": "", "metric": "gpu_temperature_celsius",
        "onset": START + 900, "at": START + 1_500, "observed": 78.0, "expected": 66.5,
        "unit": "celsius", "text": "warmer than its peers, no throttling",
    }  # fmt: skip
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def ecn_plot(seed: int = 7) -> MetricPlot:
    """Ninety minutes of ECN rates with a surge and a few missed scrapes."""
    rng = random.Random(seed)
    times = [START + k * TICK_S for k in range(360)]
    suspect: list[float | None] = []
    for k, at in enumerate(times):
        missed = 100 <= k < 112 or k in (40, 42)
        level = rng.gauss(18_000, 3_500) if at >= ONSET else abs(rng.gauss(90, 60))
        suspect.append(None if missed else max(0.0, level))
    return MetricPlot(
        metric="nic_ecn_marked_packets_total", unit="packets/s", node="gpu-a017",
        entity="nic:mlx5_3/1", times=times, suspect=suspect,
        peers_low=[0.0] * 360, peers_high=[abs(rng.gauss(700, 300)) for _ in times],
        peers_median=[abs(rng.gauss(90, 20)) for _ in times],
        band_mean=[600.0 if at >= ONSET else 100.0 for at in times],
        band_upper=[abs(rng.gauss(7_000, 400)) if at >= ONSET else 420.0 for at in times],
        band_lower=[None] * 360, onset=ONSET + 15, verdict_at=ONSET + 660, peers=31,
    )  # fmt: skip


def step_time(seed: int = 7) -> StepPlot:
    """Steps of 5 s that become 6.3 s, with two checkpoint pauses."""
    rng = random.Random(seed)
    times: list[float] = []
    took: list[float | None] = []
    at = START
    while at < START + 5_400:
        step = rng.gauss(6.3 if at >= ONSET else 5.0, 0.06)
        if len(times) in (300, 700):
            step += 48.0
        at += step
        times.append(at)
        took.append(step)
    return StepPlot(times, took, 5.0, ONSET)


XID = "NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def report() -> Report:
    """Three incidents of different kinds, a finding, a summary with losses, a score."""
    xid = incident(
        "gpu_lost", id="0b1c", cause="hardware", certain=True, scope="node:gpu-a042",
        confidence=1.0,
        suspects=[Suspect("gpu-a042", "pci:0000:c3:00", 1.0)], opened_at=START + 1_201.0,
        closed_at=START + 2_100.0,
        evidence=[Evidence("critical", "", None, None, "", START + 1_200.0, "Xid 79", "gpu-a042",
                           "pci:0000:c3:00")],
        verdict=verdict(targets=["gpu-a042"], when="now", at=START + 1_201.0, rung="machine_fault",
                        reason="Xid 79: the GPU fell off the bus; one observation proves it"),
    )  # fmt: skip
    leaf = incident(
        "fabric", id="9c", scope="leaf:leaf-03", severity="warning", confidence=0.81,
        suspects=[Suspect(f"gpu-b{k:03d}", "", 0.1) for k in range(16)], opened_at=START + 4_000,
        verdict=verdict(action="page", targets=[], at=START + 4_010, rung="network_event",
                        reason="16 of 16 nodes behind one leaf switch: no single node is at fault"),
        verdicts=[verdict(action="diagnose", targets=[], at=START + 4_300, reason="still so")],
    )  # fmt: skip
    return Report(
        title="nodewarden demo: incident report", cluster="demo",
        generated_from="simulated cluster",
        period=(START, START + 5_400),
        incidents=[
            IncidentView(incident(), ecn_plot(), step_time()),
            IncidentView(xid, kernel_lines=[KernelLine(START + 1_200, "gpu-a042", XID)]),
            IncidentView(leaf),
        ],
        findings=[finding()],
        summary={
            "records": 128_412, "rejected": 2, "late": 17, "duplicate": 0, "lost": 0,
            "truncated": 0, "cold_start": False, "nodes": 64, "ettr": 0.913, "event_s": 5_400.0,
            "coverage": {"expected": 64, "reporting": 63, "blind": ["gpu-b011"]},
        },
        notes=["jobs.json gives no pipeline stages: peers are all nodes of the job."],
        score={"found": 3, "missed": 0, "wrong": 0, "faults": [
            {"kind": "gpu_lost", "nodes": ["gpu-a042"], "found": True, "delay_s": 1.0},
            {"kind": "nic_congested", "nodes": ["gpu-a017"], "found": True, "delay_s": 660.0},
            {"kind": "fabric", "nodes": ["leaf-03"], "found": None, "delay_s": math.nan}]},
    )  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(render(report()))
