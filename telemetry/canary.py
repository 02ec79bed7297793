"""The canary: a record that goes the way of all records, to show that it leads out again.

Its shape is closed, so that nothing that a node or a log says can be taken for one: an `Event` of
no node and no job, source, class and text as below, under a name that its sender drew by chance.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from telemetry.records import Event

CANARY = "canary"
ENTITY = re.compile(r"canary:[0-9a-f]{16}\Z")


class Heard(NamedTuple):
    """A canary that came out of the engine: its name, and when it was sent, Unix seconds."""

    entity: str
    sent_at: float


class _Said(msgspec.Struct):
    """The part of a finding that tells a canary's."""

    detector: str
    state: str
    node: str
    entity: str
    onset: float


_SAID = msgspec.json.Decoder(_Said)
_MARK = b'"detector":"canary"'


def canary(name: str, at: float, started_at: float, seq: int) -> Event:
    """The record of the canary `name`, 16 hex digits."""
    return Event(
        at=at, node="", source=CANARY, started_at=started_at, seq=seq, sent_at=at, type="process",
        class_=CANARY, severity="info", entity=f"{CANARY}:{name}", text=f"{CANARY} {name}",
    )  # fmt: skip


def is_canary(event: Event) -> bool:
    """Whether it has a canary's shape, whole."""
    if event.source != CANARY or event.node or ENTITY.match(event.entity) is None:
        return False
    name = event.entity.removeprefix(f"{CANARY}:")
    plain = canary(name, event.at, event.started_at, event.seq)
    return event == msgspec.structs.replace(
        plain, sent_at=event.sent_at, replayed=event.replayed, spooled=event.spooled
    )


def heard(value: bytes | None) -> Heard | None:
    """The canary that a record of the findings topic tells of; None for all others."""
    if value is None or _MARK not in value:
        return None
    try:
        said = _SAID.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # somebody else's record
    fits = said.detector == CANARY and said.state == "open" and not said.node
    return Heard(said.entity, said.onset) if fits else None
