"""The Faust app around the worker: one channel of batches, one agent, timers, a clean end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import faust
from aiokafka.structs import ConsumerRecord
from faust.channels import Channel
from faust.types import TP

from streams.live.credentials import broker_credentials
from streams.live.transport import transport_for
from streams.live.watchdog import Watchdog
from streams.live.worker import StreamWorker
from telemetry.settings import Configuration
from telemetry.topics import TELEMETRY

LOG = logging.getLogger("nodewarden.stream")
GROUP = "nodewarden-stream"
BATCHES_WAITING = 4
BATCH_RECORDS = 1_000
FETCH_BYTES = 8_000_000
ENDS_EVERY_S = 5.0
GROUP_EVERY_S = 2.0
ANNOUNCE_EVERY_S = 0.5
# A broker that has just started may not know the topic yet. Where it tells the group's leader so,
# nobody holds anything until the leader asks again: after five minutes by default.
METADATA_MAX_AGE_S = 5.0
# A stop waits for a broker that is away, for ever. After one session others have the shards.
SESSIONS_TO_END = 2.0

Batch = tuple[int, TP, Sequence[ConsumerRecord]]
Reload = Callable[[], Configuration | None]


class Batches(Channel[Batch]):
    """A channel that keeps what it holds while partitions move.

    Faust empties its own at the start and again at the end of a rebalance, and cancels whoever
    waits for room in one: a batch would be gone between two that are folded, or the one who puts
    would take it for its own end. What must not be folded any more the worker drops itself.
    """

    @property
    def queue(self) -> Any:
        """Bounded, and waited for while Faust holds up the flow."""
        if self._queue is None:
            self._queue = self.app.FlowControlQueue(self.maxsize, clear_on_resume=False)
        return self._queue


class Pump:
    """What the transport drives: places at once, batches through the channel to the agent."""

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker
        self._reading = -1
        self.refused = worker.refused
        self.channel: Any = None

    async def assigned(self, partitions: frozenset[TP]) -> Mapping[TP, int] | None:
        """A new reading begins: what comes from here on was read from these places."""
        places = await self._worker.assigned(partitions)
        self._reading = self._worker.reading
        return places

    async def batch(self, place: TP, records: Sequence[ConsumerRecord]) -> bool:
        """Into the channel, when there is room; False where its reading is over."""
        if self._reading == self._worker.reading:
            await self.channel.put((self._reading, place, records))
        return self._reading == self._worker.reading


def build(worker: StreamWorker, instance: str, reload: Reload) -> faust.App:
    """The app that feeds `worker`; `reload` gives changed settings, None where nothing changed."""
    configuration = worker.configuration
    pump = Pump(worker)
    app: Any = _app(configuration, instance)  # its decorators and signals carry no types
    transport = transport_for(pump)
    url = app.conf.broker
    app.transport = transport(url, app, loop=app.loop)
    app.producer_transport = transport(url, app, loop=app.loop)
    app.topics.add(app.topic(TELEMETRY, acks=False, value_type=bytes, key_type=bytes))
    channel = pump.channel = Batches(app, maxsize=BATCHES_WAITING)
    worker.app = app

    async def fold(batches: Any) -> None:
        async for reading, place, records in batches:
            await worker.batch(reading, place, records)

    async def revoked(_app: Any, _revoked: Any, **_: Any) -> None:
        await worker.revoked()

    async def stopping(_app: Any, **_: Any) -> None:
        await worker.stop()

    async def look_at_settings() -> None:
        changed = reload()
        if changed is not None:
            worker.adopt(changed)

    app.agent(channel, concurrency=1)(fold)
    app.on_partitions_revoked.connect(revoked, weak=False)
    app.on_before_shutdown.connect(stopping, weak=False)
    app.timer(ANNOUNCE_EVERY_S)(worker.announce)
    app.timer(ENDS_EVERY_S)(worker.look_at_ends)
    app.timer(GROUP_EVERY_S)(worker.look_at_group)
    app.timer(configuration.stream.settings_poll_s)(look_at_settings)
    built: faust.App = app
    return built


def _app(configuration: Configuration, instance: str) -> faust.App:
    kafka, stream = configuration.kafka, configuration.stream
    brokers = ";".join(f"kafka://{broker}" for broker in kafka.brokers)
    return faust.App(
        GROUP,
        broker=brokers,
        broker_credentials=broker_credentials(kafka),
        broker_client_id=f"nodewarden-{instance}",
        broker_session_timeout=stream.session_s,
        broker_heartbeat_interval=stream.session_s / 4.0,
        broker_rebalance_timeout=2.0 * stream.session_s,
        broker_request_timeout=max(kafka.request_timeout_s, stream.session_s),
        broker_max_poll_records=BATCH_RECORDS,
        consumer_group_instance_id=instance,
        consumer_max_fetch_size=FETCH_BYTES,
        consumer_metadata_max_age_ms=round(METADATA_MAX_AGE_S * 1000.0),
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_max_request_size=4 * FETCH_BYTES,
        producer_linger=0.0,
        topic_disable_leader=True,
        topic_allow_declare=False,
        store="memory://",
        table_standby_replicas=0,
        key_serializer="raw",
        value_serializer="raw",
        agent_supervisor="mode.CrashingSupervisor",
        stream_wait_empty=False,
        web_enabled=False,
        worker_redirect_stdouts=False,
        autodiscover=False,
        datadir=None,
    )


class _Process(faust.Worker):
    """Faust's worker process without its debugger and its shouting.

    ending   called when it begins to end, for whatever reason
    """

    def __init__(self, app: faust.App, ending: Callable[[], None], **options: Any) -> None:
        self._ending = ending
        super().__init__(app, **options)

    def _schedule_shutdown(self, signal: signal.Signals) -> None:
        self._ending()
        super()._schedule_shutdown(signal)

    def _crash(self, reason: BaseException) -> None:
        self._ending()
        super()._crash(reason)

    def _on_sigusr2(self) -> None:
        LOG.info("SIGUSR2 is ignored")

    def _on_sigint(self) -> None:
        self._schedule_shutdown(signal.SIGINT)


def run(worker: StreamWorker, instance: str, reload: Reload) -> str:
    """Work until SIGTERM or SIGINT; "" after a clean end, else why the process must go."""
    configuration = worker.configuration
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app = build(worker, instance, reload)
    stream = configuration.stream
    # It stays until the process is gone: threads of the libraries may hold up the very end, too.
    watchdog = Watchdog(worker, stream.no_progress_s, SESSIONS_TO_END * stream.session_s)
    watchdog.start()
    process = _Process(
        app, watchdog.ending, loop=loop, quiet=True, override_logging=False, redirect_stdouts=False
    )
    process.spinner = None  # it writes to standard output
    try:
        process.execute_from_commandline()
    except SystemExit as ended:
        if ended.code not in (0, None) and not worker.failed:
            worker.failed = "the worker could not go on; the lines before say why"
    return worker.failed
