"""Helpers for tests that drive a fold: small labelled logs, and folding them in many ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from actions.policy import verdict
from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from nodewarden.replaying import Replayed, json_object
from streams.exhibits import Exhibits
from streams.fold import Fold, ShardKind
from streams.replay import Outcome, drive, summarize
from streams.snapshot import Snapshots
from telemetry.records import Arrived
from telemetry.settings import EngineSettings


@lru_cache(maxsize=8)
def simulated(
    nodes: int, minutes: float, faults: tuple[str, ...] = (), seed: int = 1
) -> tuple[Arrived, ...]:
    """A simulated log, whole."""
    run = Simulation(
        nodes, minutes=minutes, seed=seed, faults=[parse_fault(text) for text in faults]
    )
    return numbered(record for record in run.records())


def numbered(records: Iterable[tuple[float, Any]]) -> tuple[Arrived, ...]:
    """(arrival, record) pairs at the places of a log."""
    return tuple(Arrived(i, arrival, record) for i, (arrival, record) in enumerate(records))


def fresh(kind: ShardKind = "live") -> Fold:
    """A fold with the real ladder."""
    return Fold(verdict, kind)


def folded(log: Sequence[Arrived], kind: ShardKind = "live") -> tuple[Fold, Outcome]:
    """The whole log through one fold."""
    fold, outcome = fresh(kind), Outcome()
    drive(log, fold, outcome)
    assert fold.counters.conserved(), fold.counters
    return fold, outcome


def printed(fold: Fold, outcome: Outcome) -> bytes:
    """What `replay --json` prints."""
    replayed = Replayed(outcome, summarize([fold], 0, False), Exhibits(), [fold], [])
    return msgspec.json.encode(json_object(replayed))


def with_snapshots(
    log: Sequence[Arrived], every: int, store: dict[str, bytes], outcome: Outcome
) -> Fold:
    """Fold the log and publish a whole snapshot after each `every` records."""
    fold, snapshots = fresh(), Snapshots("main")
    for arrived in log:
        outcome.take(fold.step(arrived))
        if arrived.offset % every == every - 1:
            for key, value in snapshots.take(fold):
                store[key] = value
    return fold


DEFAULTS = EngineSettings()
