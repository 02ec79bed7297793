"""The action service's process: what it is made of, its loop, and how it ends."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from actions.active import Active
from actions.context import rail_context
from actions.desk import Desk
from actions.ledger import Ledger
from actions.ledger_log import encode, key_of, rebuild
from actions.metrics import ActMetrics
from actions.outside import Outside, Point, no_point, nobody_knows, not_compared
from actions.ports import Executor, JobFacts, Looks, Teller
from actions.service import ActionService, Decide, Recheck, observing
from actions.site import Site, SiteView
from collectors.broker.consumer import KafkaLogReader
from collectors.broker.membership import Membership
from collectors.broker.publisher import KafkaPublisher
from collectors.broker.transactions import Transactions
from collectors.link import Message
from nodewarden.shards import live_target
from nodewarden.version import version
from telemetry.actions import ActionRecord, Compared, Decision, RailContext, Update
from telemetry.codec import encode as encode_telemetry
from telemetry.errors import Fenced
from telemetry.ports import Clock
from telemetry.records import Control
from telemetry.settings import Configuration
from telemetry.topics import ACTIONS, TELEMETRY

POLL_S = 0.25
REBUILD_RECORDS_MAX = 200_000

_log = logging.getLogger("nodewarden.act")
SiteOf = Callable[[], Site]
Telling = Callable[[], AbstractContextManager[Teller | None]]


def _nobody() -> AbstractContextManager[Teller | None]:
    return nullcontext()


class KafkaActionLog:
    """The ActionLog over the fenced producer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def commit(self, records: Sequence[ActionRecord]) -> None:
        """Return when all of them are in the log. Raises Fenced, PublishError."""
        self._transactions.commit(
            [Message(ACTIONS, encode(one), key_of(one), 0) for one in records]
        )


class Acting:
    """Stands by until it is the active instance, and acts until it is no more, or `stop` is set.

    decide    the rails; `recheck`: once more before something is done
    site      what they read beside the ledger, as it is now; None: they read only of a pause
    compared  what the steps say that were made again after an update
    job       what is known of a job, by its id
    looks     how nodes are that were taken out; None: the executor answers that at once
    telling   tells people, while the block runs, of what `tells` says
    raises    Fenced, PublishError, SourceUnavailable: the process ends, and may start again
    """

    def __init__(
        self, configuration: Configuration, executor: Executor, desk: Desk, clock: Clock,
        metrics: ActMetrics, *, decide: Decide = observing, site: SiteOf | None = None,
        recheck: Recheck | None = None, telling: Telling = _nobody,
        tells: Callable[[Decision], bool] = lambda _decision: True, point: Point = no_point,
        compared: Callable[[Update], list[Compared] | None] = not_compared,
        job: Callable[[str], JobFacts] = nobody_knows, looks: Looks | None = None,
    ) -> None:  # fmt: skip
        self._job, self._looks = job, looks
        self._compared = compared
        self._configuration, self._executor, self._desk = configuration, executor, desk
        self._clock, self._metrics = clock, metrics
        self._decide, self._site = decide, site
        self._recheck, self._telling, self._tells, self._point = recheck, telling, tells, point
        self._shard = live_partition(configuration)

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        settings = self._configuration.act
        member = Membership(
            self._configuration.kafka, settings.transactional_id, ACTIONS, settings.session_s,
            2.0 * settings.call_timeout_s + 30.0,
        )  # fmt: skip
        try:
            while not stop.is_set():
                if member.is_active(POLL_S):
                    with self._telling() as teller:
                        self._be_active(member, stop, teller)
        finally:
            member.close()

    def _be_active(
        self, member: Membership, stop: threading.Event, teller: Teller | None
    ) -> None:  # fmt: skip
        configuration, settings = self._configuration, self._configuration.act
        transactions = Transactions(configuration.kafka, settings.transactional_id)
        reader = incidents = publisher = None
        active: Active | None = None
        try:
            reader = KafkaLogReader(
                configuration.kafka, self._clock, "nodewarden-act", committed=True
            )
            found = rebuild(reader, settings.entries_max, REBUILD_RECORDS_MAX)
            self._metrics.rejected.inc(found.rejected)
            _log.info(
                "ledger records=%d decisions=%d rejected=%d", found.records,
                len(found.ledger.decisions), found.rejected,
            )  # fmt: skip
            incidents = KafkaLogReader(configuration.kafka, self._clock, "nodewarden-act")
            publisher = KafkaPublisher(configuration.kafka, self._clock, "nodewarden-act-control")
            active = self._active(found.ledger, transactions, incidents, publisher, teller)
            active.start(live_partitions(configuration))
            while not stop.is_set():
                if not member.is_active(0.0):
                    raise Fenced("the group gave another instance our place; this one ends")
                active.step(POLL_S)
        finally:
            if active is not None:
                active.stop()
            for one in (reader, incidents, publisher, transactions):
                if one is not None:
                    one.close()

    def _active(
        self, ledger: Ledger, transactions: Transactions, incidents: KafkaLogReader,
        publisher: KafkaPublisher, teller: Teller | None,
    ) -> Active:  # fmt: skip
        def control(record: Control) -> None:
            publisher.publish(
                TELEMETRY, encode_telemetry(record), key=self._configuration.engine.shard.encode(),
                partition=self._shard,
            )  # fmt: skip
            publisher.flush()

        view = SiteView() if self._site is None else SiteView(self._site)

        def context(now_s: float) -> RailContext:
            if self._site is None:
                return RailContext(paused=ledger.paused)
            return rail_context(ledger, view.site, self._configuration.act, now_s)

        service = ActionService(
            ledger, self._configuration.act, self._decide, context, self._recheck
        )
        outside = Outside(
            KafkaActionLog(transactions), incidents, self._executor, control, teller,
            self._tells, self._point, view, version(), self._job, compared=self._compared,
            looks=self._looks,
        )  # fmt: skip
        return Active(
            service, outside, self._desk, self._configuration.act, self._clock, self._metrics,
            f"{socket.gethostname()}/{os.getpid()}",
        )  # fmt: skip


def live_partition(configuration: Configuration) -> int:
    """Of the shard that people's words go to. Raises SettingsError where it is no live one."""
    return live_target(configuration, "act needs one").partition


def live_partitions(configuration: Configuration) -> list[int]:
    """Of all shards but those of history: what happened long ago is not acted upon."""
    return [
        number
        for number, shard in enumerate(configuration.shards)
        if shard not in configuration.history_shards
    ]
