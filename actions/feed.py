"""The incidents as the log tells them: each revision with its place, and what is known by now."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from actions.metrics import ActMetrics
from telemetry.archive_line import ArchiveLine
from telemetry.errors import SourceUnavailable
from telemetry.findings import Incident
from telemetry.ports import Clock, LogReader
from telemetry.topics import INCIDENTS

KNOWN_MAX = 5_000  # incidents in memory
CLOSED_KNOWN_S = 86_400.0
SILENT_POLLS = 40

_log = logging.getLogger("nodewarden.act")
Place = tuple[int, int]  # partition and offset


class IncidentFeed:
    """Reads from the first kept incident on: what is open is known before anything is done.

    known  id -> its newest revision
    """

    def __init__(self, reader: LogReader, clock: Clock, metrics: ActMetrics) -> None:
        self._reader, self._clock, self._metrics = reader, clock, metrics
        self.known: dict[str, Incident] = {}
        self._places: dict[str, Place] = {}
        self._left: dict[int, int] = {}  # partition -> the end that is still to be reached
        self._next: dict[int, int] = {}  # partition -> the offset to read next
        self._placed = False
        self._silent_polls = 0

    def start(self, partitions: Sequence[int]) -> None:
        """Read these partitions. Raises SourceUnavailable."""
        bounds = self._reader.bounds([(INCIDENTS, one) for one in partitions])
        self._left = {place[1]: end for place, (first, end) in bounds.items() if first < end}
        self._next = {place[1]: first for place, (first, _) in bounds.items()}
        self._place()

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at the start has been read."""
        return not self._left

    def open_incidents(self) -> set[str]:
        """Ids of those that are not over."""
        return {name for name, one in self.known.items() if one.closed_at is None}

    def place_of(self, incident: str) -> Place | None:
        """Where its newest known revision stands."""
        return self._places.get(incident)

    def forget(self, now_s: float) -> None:
        """Drop what was over long ago."""
        self.known = {
            name: one for name, one in self.known.items()
            if one.closed_at is None or now_s - one.closed_at < CLOSED_KNOWN_S
        }  # fmt: skip
        self._places = {name: place for name, place in self._places.items() if name in self.known}

    def poll(self, wait_s: float) -> list[tuple[Incident, Place]]:
        """What came within that time; nothing where the broker does not answer."""
        try:
            if not self._placed:
                self._place()
            lines = self._reader.poll(wait_s)
        except SourceUnavailable as error:
            _log.warning("incidents_unread error=%s", error)
            self._placed = False
            self._clock.sleep(wait_s)
            return []
        self._catch_up(lines)
        told: list[tuple[Incident, Place]] = []
        for line in lines:
            self._next[line.partition] = line.offset + 1
            incident = _incident(line.value)
            if incident is None:
                self._metrics.rejected.inc(line.value is not None)
                continue
            self._know(incident, (line.partition, line.offset))
            told.append((incident, (line.partition, line.offset)))
        return told

    def _place(self) -> None:
        """Read on where we were, or from what is still kept; after an error nobody knows where."""
        bounds = self._reader.bounds([(INCIDENTS, one) for one in self._next])
        self._reader.assign({
            place: max(first, self._next[place[1]]) for place, (first, _) in bounds.items()
        })  # fmt: skip
        self._placed = True

    def _catch_up(self, lines: Sequence[ArchiveLine]) -> None:
        """Nothing is done before all that is known of the incidents has been read."""
        self._silent_polls = 0 if lines else self._silent_polls + 1
        for line in lines:
            if line.offset + 1 >= self._left.get(line.partition, line.offset + 2):
                del self._left[line.partition]
        if self._silent_polls >= SILENT_POLLS:  # the end was compacted away
            self._left.clear()

    def _know(self, incident: Incident, place: Place) -> None:
        known = self.known.pop(incident.id, None)
        is_newer = known is None or incident.rev >= known.rev
        self.known[incident.id] = incident if is_newer or known is None else known
        if is_newer:
            self._places[incident.id] = place
        if len(self.known) > KNOWN_MAX:
            oldest = next(iter(self.known))
            del self.known[oldest], self._places[oldest]


def _incident(value: bytes | None) -> Incident | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=Incident)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
