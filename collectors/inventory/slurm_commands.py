"""The inventory out of Slurm's commands: `sinfo` and `squeue`, or `scontrol` on old versions.

Nothing goes through a shell. The text of `scontrol` is read in its form of many lines: on one line
nobody can tell where a comment ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from collectors.flat import Flat
from collectors.inventory.reservations import WITHOUT_RESERVATIONS, read_text
from collectors.inventory.slurm import allocation
from collectors.inventory.topology import Where, read_topology
from collectors.inventory.whole import whole
from collectors.slurm import read_objects
from collectors.slurm_objects import Place, listing_object
from telemetry.errors import ListingIncomplete, SourceUnavailable
from telemetry.ports import Clock
from telemetry.records import Allocation, Maintenance
from telemetry.settings import SlurmSettings
from telemetry.tools import ENVIRONMENT, Tools

TOPOLOGY_S = 600.0  # a changed topology is noticed after so long
SAID_MAX = 200
_NO_JSON = re.compile(r"unrecognized option|invalid option|serializer|JSON|data_parser", re.I)
_NO_TOPOLOGY = re.compile(r"no topology", re.I)
_NO_JOBS = b"No jobs in the system"

_log = logging.getLogger("nodewarden.inventory")


class SlurmCommands:
    """An `InventorySource`; of one thread."""

    def __init__(self, settings: SlurmSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        # Slurm prints times in the time zone of whoever asks.
        environment = {**ENVIRONMENT, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        if settings.conf:
            environment["SLURM_CONF"] = settings.conf
        self._tools = Tools(clock, environment, settings.output_max_bytes)
        self._is_json = settings.output != "text"
        self._places: dict[str, Where] = {}
        self._topology_at_s: float | None = None

    def listing(self) -> Allocation:
        """Nodes first, jobs after. Raises SourceUnavailable, ListingIncomplete."""
        nodes, jobs = self._nodes_and_jobs()
        places = self._topology() if self._settings.topology else {}
        windows = self._maintenance() if self._settings.reservations else []
        at_s = self._clock.time_s()
        return allocation(nodes, jobs, places, self._settings.partitions, at_s, windows)

    def _nodes_and_jobs(self) -> tuple[list[Flat], list[Flat]]:
        if not self._is_json:
            return self._text("nodes"), self._text("jobs")
        try:
            return self._json("nodes"), self._json("jobs")
        except _NoJson as error:
            if self._settings.output == "json":
                raise
            _log.warning("slurm_without_json error=%s: reading the text of scontrol", error)
            self._is_json = False
            return self._text("nodes"), self._text("jobs")

    def _json(self, of: str) -> list[Flat]:
        words = {
            "nodes": [self._settings.sinfo, "--all", "--json"],
            # Those that ended lately are in it too, with their end.
            "jobs": [self._settings.squeue, "--all", "--states=all", "--json"],
        }[of]
        return whole(read_objects(words[0], [self._printed(words)]), of, " ".join(words))

    def _text(self, of: str) -> list[Flat]:
        words = [self._settings.scontrol, "--all", "show", of]
        printed = self._printed(words)
        asked = " ".join(words)
        if not printed.endswith(b"\n\n") and _NO_JOBS not in printed:  # as each record does
            raise ListingIncomplete(f"{asked}: the answer breaks off")
        return whole(_ended(asked, printed, of), of, asked)

    def _printed(self, words: list[str]) -> bytes:
        done = self._tools.ran(words, self._settings.timeout_s)
        said = " ".join(done.said.split())[:SAID_MAX]
        if done.status != 0:
            kind = _NoJson if "--json" in words and _NO_JSON.search(said) else SourceUnavailable
            raise kind(f"{' '.join(words)}: {said or f'ends with status {done.status}'}")
        return done.printed

    def _topology(self) -> dict[str, Where]:
        """Asked for now and then; a failure fails the listing, for a node without its leaf is
        not where it was."""
        now_s = self._clock.monotonic_s()
        if self._topology_at_s is None or now_s - self._topology_at_s >= TOPOLOGY_S:
            words = [self._settings.scontrol, "show", "topology"]
            done = self._tools.ran(words, self._settings.timeout_s)
            if done.status != 0 and not _NO_TOPOLOGY.search(done.said):
                said = " ".join(done.said.split())[:SAID_MAX]
                raise SourceUnavailable(f"{' '.join(words)}: {said or done.status}")
            self._places = read_topology(done.printed.decode("utf-8", "replace"))
            self._topology_at_s = now_s
        return self._places

    def _maintenance(self) -> list[Maintenance]:
        """Always as text: `scontrol` prints JSON only from 23.02 on. A failure fails the listing:
        what cannot be read is not "no maintenance"."""
        words = [self._settings.scontrol, "--all", "show", "reservation"]
        asked = " ".join(words)
        try:
            return read_text(self._printed(words).decode("utf-8", "replace"), asked)
        except SourceUnavailable as error:
            raise type(error)(f"{error}{WITHOUT_RESERVATIONS}") from error


class _NoJson(SourceUnavailable):
    """This Slurm prints no JSON."""


def _ended(asked: str, printed: bytes, of: str) -> Iterator[Flat]:
    """The objects of `scontrol show`, with the end that its text does not have."""
    count = 0
    for said in read_objects(asked, [printed]):
        count += said["type"] in ("node", "job")
        yield said
    if of == "nodes":
        fault = "" if count else "no node in it: a cluster has nodes"
    else:
        fault = "" if count or _NO_JOBS in printed else "neither a job nor that there is none"
    yield listing_object(Place(asked), of, count, fault)
