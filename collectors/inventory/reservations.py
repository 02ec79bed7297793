"""Slurm's reservations for maintenance into windows: `scontrol show reservation`, slurmrestd. Pure.

A reservation that nobody can read is no "no maintenance": the whole answer is then refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any

import msgspec

from collectors.flat import dict_of, list_of, name_of, text_of, time_of, words_of
from telemetry.errors import ListingIncomplete
from telemetry.hostlist import expand
from telemetry.records import Maintenance
from telemetry.slurm_words import local_time

RESERVATIONS_MAX = 10_000
SAID_MAX = 200
WITHOUT_RESERVATIONS = "; inventory.slurm.reservations = false does without"
_FIELD = re.compile(r"(\w{1,40})=(\S*)")
_NONE = "No reservations in the system"


def read_text(text: str, asked: str) -> list[Maintenance]:
    """What `scontrol show reservation` prints in UTC, one that is over or to come too.

    asked  the command, for the error
    Raises ListingIncomplete.
    """
    if _NONE in text and "ReservationName=" not in text:
        return []
    if not text.endswith("\n\n"):  # as each reservation does
        raise ListingIncomplete(f"{asked}: the answer breaks off")
    return list(_windows(map(_fields, text.split("\n\n")[:-1]), asked))


def read_json(body: bytes, asked: str) -> list[Maintenance]:
    """What slurmrestd answers to `/reservations`. Raises ListingIncomplete."""
    try:
        said = dict_of(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ListingIncomplete(f"{asked}: the answer breaks off") from error
    rows = said.get("reservations")
    if list_of(said.get("errors")):
        told = text_of(dict_of(list_of(said.get("errors"))[0]).get("error"), SAID_MAX)
        raise ListingIncomplete(f"{asked}: {told or 'an error'}")
    if not isinstance(rows, list):
        raise ListingIncomplete(f"{asked}: the answer holds no list of reservations")
    return list(_windows(map(_row, rows), asked))


def of_nodes(windows: Iterable[Maintenance], listed: Iterable[str]) -> list[Maintenance]:
    """The windows, of each only the listed nodes; one of which none is listed is left out.

    A window without a node would be one of all nodes.
    """
    known = set(listed)
    found = []
    for window in windows:
        nodes = [name for name in window.nodes if name in known]
        if nodes:
            found.append(msgspec.structs.replace(window, nodes=nodes))
    return sorted(found, key=lambda window: (window.name, window.since))


class _Said(msgspec.Struct):
    name: str
    nodes: str
    flags: list[str]
    since: float | None
    until: float | None


def _fields(block: str) -> _Said:
    """A block of `scontrol`; of a key that comes twice the first, for comments come last."""
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(block[:1_000_000]):
        fields.setdefault(key, value)
    nodes = fields.get("Nodes", "")
    return _Said(
        name_of(fields.get("ReservationName")), "" if nodes == "(null)" else nodes,
        fields.get("Flags", "").split(","), local_time(fields.get("StartTime", ""), UTC),
        local_time(fields.get("EndTime", ""), UTC),
    )  # fmt: skip


def _row(value: Any) -> _Said:
    row = dict_of(value)
    return _Said(
        name_of(row.get("name")), text_of(row.get("node_list"), 1_000_000),
        words_of(row.get("flags")), time_of(row.get("start_time")), time_of(row.get("end_time")),
    )  # fmt: skip


def _windows(said: Iterable[_Said], asked: str) -> Iterator[Maintenance]:
    """Of reservations for maintenance; those of users keep nobody from acting."""
    for count, one in enumerate(said, start=1):
        if count > RESERVATIONS_MAX:
            raise ListingIncomplete(f"{asked}: more than {RESERVATIONS_MAX} reservations")
        if not one.name:
            raise ListingIncomplete(f"{asked}: a reservation without a name")
        if "MAINT" not in one.flags or not one.nodes:  # of licences or cores alone
            continue
        names = expand(one.nodes)
        if isinstance(names, str):
            raise ListingIncomplete(f"{asked}: {one.name}: {names}")
        if one.since is None or one.until is None or one.since >= one.until:
            raise ListingIncomplete(f"{asked}: {one.name}: from when until when is not said")
        yield Maintenance(one.name, one.since, one.until, names)
