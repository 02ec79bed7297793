"""How far the past of a Prometheus was told: outlives the collector, saved when all is settled."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collectors.agent.positions import PositionFile

NAME = "prometheus.json"


class Stream(msgspec.Struct, array_like=True):
    """One stream: its next number, and for frames the time up to which they are told.

    is_joined   two exporters feed the source
    """

    node: str
    source: str
    seq: int
    at_s: float | None = None
    is_joined: bool = False


class Position(msgspec.Struct):
    """Everything up to `until_ms` is told, but for rows that wait: those begin after `held_ms`.

    started_at  of the streams: they go on after a restart, so that what was sent and not saved is
                sent again under its own number, and counts as a repeat
    intervals   source -> seconds between its scrapes
    """

    started_at: float
    until_ms: int
    held_ms: int
    intervals: dict[str, float] = {}
    streams: list[Stream] = []


def position_file(state: Path) -> PositionFile[Position]:
    """Where it is kept."""
    return PositionFile(state / NAME, Position)
