"""Keeps the log told who runs where: beats, changes at once, a full listing every so often."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from collectors.inventory.listings import Part, change, parts
from collectors.inventory.metrics import InventoryMetrics
from collectors.inventory.source import InventorySource
from collectors.inventory.state import InventoryState
from telemetry.codec import encode
from telemetry.errors import InputError, ListingIncomplete, PublishError, SourceUnavailable
from telemetry.ports import Clock, Publisher
from telemetry.records import Allocation, Beat, Record, Settings
from telemetry.settings import EngineSettings, InventorySettings, settings_digest
from telemetry.topics import TELEMETRY

SOURCE = "inventory"

_log = logging.getLogger("nodewarden.inventory")


class Target(msgspec.Struct, frozen=True):
    """The live shard that is told, and its partition."""

    shard: str
    partition: int


class InventoryPoller:
    """`start`, then `step` again and again. Not to be shared between threads.

    engine   the settings that the log is told, read again by the caller when they changed
    version  of this engine, for the `Settings` record
    """

    def __init__(
        self, source: InventorySource, publisher: Publisher, state: InventoryState, target: Target,
        engine: Callable[[], EngineSettings], version: str, settings: InventorySettings,
        clock: Clock, metrics: InventoryMetrics,
    ) -> None:  # fmt: skip
        self._source = source
        self._publisher = publisher
        self._state = state
        self._target = target
        self._engine = engine
        self._version = version
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._started_at = clock.time_s()
        self._seq = 0
        self._listings = 0
        self._known: Allocation | None = None
        self._fault = ""
        self._look_at = self._listing_at = self._beat_at = clock.monotonic_s()

    @property
    def fault(self) -> str:
        """Why the source gave no listing when it was asked last; "" where it did."""
        return self._fault

    def start(self) -> None:
        """The first full listing. Raises InputError: without one before it, a broken one is an
        error of the operator; PublishError."""
        try:
            self._take(self._source.listing())
        except SourceUnavailable as error:
            self._say_fault(error)
        self._look_at = self._clock.monotonic_s() + self._settings.poll_s
        self.step()

    def step(self) -> float:
        """Do what is due; returns the seconds until something is due again.

        Raises PublishError: what was not taken is said again, whole, by the next call.
        """
        try:
            self._do_what_is_due()
            self._publisher.flush()
        except PublishError:
            self._metrics.publish_failures.inc()
            self._state.doubt()
            self._listing_at = -math.inf
            raise
        due_at = min(self._look_at, self._listing_at, self._beat_at)
        return max(due_at - self._clock.monotonic_s(), 0.0)

    def _do_what_is_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._look_at:
            self._look_at = now_s + self._settings.poll_s
            self._look()
        if now_s >= self._listing_at:
            self._list()
            self._listing_at = now_s + self._settings.listing_s
        if now_s >= self._beat_at:
            self._put(Beat(at=0.0, node="", source=SOURCE, started_at=self._started_at, seq=0))
            self._beat_at = now_s + self._engine().ticks.beat_s

    def _look(self) -> None:
        """Ask the source; a change is said at once, a failure once, and nothing else happens."""
        try:
            listing = self._source.listing()
        except (InputError, SourceUnavailable) as error:
            self._say_fault(error)
            return
        if self._fault:
            _log.info("source_well_again")
            self._fault = ""
        before = self._known
        self._take(listing)
        if before is None:
            self._listing_at = -math.inf
            return
        differs = change(before, listing, self._clock.time_s(), self._settings.part_bytes)
        if differs.whole:
            self._listing_at = -math.inf
        elif not differs.is_empty:
            for part in parts(differs.jobs, differs.nodes, self._settings.part_bytes):
                self._put(self._allocation(part))
            self._metrics.changes.inc()
            self._state.become(listing)
            _log.info("change jobs=%d nodes=%d", len(differs.jobs), len(differs.nodes))
        elif before.maintenance != listing.maintenance:  # not in the log: the topic alone has it
            self._state.become(listing)
            _log.info("change windows=%d", len(listing.maintenance))

    def _take(self, listing: Allocation) -> None:
        """One job an id, the last one counts, as the fold has it."""
        jobs = {job.id: job for job in listing.jobs}
        self._known = replace(listing, jobs=list(jobs.values()))
        self._metrics.source_s.set(self._clock.time_s())
        self._metrics.jobs.set(len(jobs))
        self._metrics.nodes.set(len(listing.nodes))

    def _list(self) -> None:
        """Settings first, for a log that is new; then everything, where anything is known."""
        engine = replace(self._engine(), shard=self._target.shard)
        self._put(
            Settings(
                at=0.0, node="", source=SOURCE, started_at=self._started_at, seq=0,
                digest=settings_digest(engine), engine_version=self._version, settings=engine,
            )
        )  # fmt: skip
        known = self._known
        if known is None:
            return
        cut = parts(known.jobs, known.nodes, self._settings.part_bytes)
        self._listings += 1
        listing = f"{self._started_at:.3f}-{self._listings}"
        for number, part in enumerate(cut, start=1):
            record = self._allocation(part)
            last = number == len(cut)
            self._put(replace(record, listing=listing, last=last, count=len(cut)))
        self._metrics.listings.inc()
        self._state.become(known)
        _log.info("listing parts=%d jobs=%d nodes=%d", len(cut), len(known.jobs), len(known.nodes))

    def _allocation(self, part: Part) -> Allocation:
        return Allocation(
            at=0.0, node="", source=SOURCE, started_at=self._started_at, seq=0,
            jobs=part.jobs, nodes=part.nodes,
        )  # fmt: skip

    def _put(self, record: Record) -> None:
        """Number and stamp the record, and hand it over; a number is never used twice."""
        now_s = self._clock.time_s()
        seq, self._seq = self._seq, self._seq + 1
        self._publisher.publish(
            TELEMETRY,
            encode(replace(record, at=now_s, sent_at=now_s, seq=seq)),
            key=self._target.shard.encode(),
            partition=self._target.partition,
            headers=[("kind", str(record.__struct_config__.tag).encode())],
        )

    def _say_fault(self, error: Exception) -> None:
        self._metrics.failures.inc()
        if isinstance(error, ListingIncomplete):
            self._metrics.incomplete.inc()
        if str(error) != self._fault:
            self._fault = str(error)
            _log.error("source_failed error=%s: what was known before stays in force", error)
