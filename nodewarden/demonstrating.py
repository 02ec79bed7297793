"""The demo: independent runs, each with one fault, through the embedded pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from rich.text import Text

from evaluation.scenarios import SCENARIOS, demo
from evaluation.scoring import Score, Truth, TruthFault, score
from evaluation.simulator import Simulation
from nodewarden.logs import Log
from nodewarden.progress import Bar
from nodewarden.replaying import Replayed, replay
from telemetry.findings import Incident
from telemetry.records import Arrived, Record
from telemetry.settings import EngineSettings


@dataclass(frozen=True)
class Shown:
    """What the demo did: the runs' names with their windows of time, and all that came of it."""

    runs: list[tuple[str, Simulation]]
    replayed: Replayed
    score: Score


def demonstrate(seed: int, settings: EngineSettings, progress: Bar) -> Shown:
    """Fold every run, each as a log of its own; the truth is looked at only afterwards."""
    runs = list(demo(seed, settings))
    replayed = replay(
        [Log(name=name, kind="live", records=_arriving(run.records())) for name, run in runs],
        tick=progress.folded,
    )
    faults = [fault for _, run in runs for fault in _faults(run)]
    return Shown(runs, replayed, score(replayed.incidents, Truth(faults), replayed.end_s))


def verdict_lines(shown: Shown) -> Iterator[Text]:
    """One line a run: what was injected, whom we named, what the scheduler would have been told."""
    yield Text("What was injected, and what the scheduler would have been told", style="bold")
    for name, run in shown.runs:
        told = [i for i in shown.replayed.incidents if run.start_s <= i.opened_at <= run.end_s]
        injected = ", ".join(sorted({n for f in _faults(run) for n in f.nodes}))
        line = Text(f"  {name:<10} on {_short(injected):<16} ")
        line.append(f"{SCENARIOS[name].text}\n", style="dim")
        for said in [_told(incident) for incident in told] or ["no incident; nothing"]:
            line.append(f"             -> {said}\n")
        line.rstrip()
        yield line


def _faults(run: Simulation) -> list[TruthFault]:
    return msgspec.convert(run.truth(), Truth).faults


def _told(incident: Incident) -> str:
    verdict = incident.verdict
    named = ", ".join(s.node or s.entity for s in incident.suspects) or "nobody"
    what = verdict.action.replace("_", " ")
    if verdict.targets:
        what += f" {', '.join(verdict.targets)} ({verdict.when.replace('_', ' ')})"
    return f"{incident.kind}, cause {incident.cause}, named {named}: {what}"


def _short(names: str) -> str:
    return names if len(names) <= 16 else f"{names[:13]}..."


def _arriving(records: Iterable[tuple[float, Record]]) -> Iterator[Arrived]:
    for offset, (arrival, record) in enumerate(records):
        yield Arrived(offset, arrival, record)
