"""Notifying within `nodewarden act`: a thread beside the active instance, and its wiring."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from actions.notify.board import Board
from actions.notify.channels import build_channels
from actions.notify.http import UrllibHttp
from actions.notify.labels import Places, nowhere
from actions.notify.metrics import NotifyMetrics
from actions.notify.notifier import Notifier
from actions.notify.routing import Router
from actions.notify.store import Store
from nodewarden.notify_file import read_notify_file, with_secrets
from telemetry.ports import Clock
from telemetry.settings import Configuration

LEAVE_S = 15.0
RETRY_S = 5.0

_log = logging.getLogger("nodewarden.notify")


@contextmanager
def notifying(
    configuration: Configuration, clock: Clock, registry: CollectorRegistry,
    stop: threading.Event, places: Places = nowhere,
) -> Iterator[Notifier | None]:  # fmt: skip
    """Tell people while the block runs; None where no notify file is named.

    Raises SettingsError before the block begins, never later.
    """
    if not configuration.notify.file:
        yield None
        return
    cluster = configuration.engine.cluster
    file = configuration.notify.file
    settings = with_secrets(read_notify_file(Path(file), cluster), file)
    store = Store(Path(configuration.notify.state_dir))
    ended = threading.Event()
    try:
        board = Board(Router(settings, cluster, places), cluster, store)
        channels = build_channels(settings, UrllibHttp, clock)
        notifier = Notifier(board, channels, clock, NotifyMetrics(registry))
        arguments = (notifier, stop, ended)
        thread = threading.Thread(target=_loop, args=arguments, name="notify", daemon=True)
        thread.start()
        try:
            yield notifier
        finally:
            ended.set()
            thread.join(LEAVE_S)
    finally:
        store.close()


def _loop(notifier: Notifier, stop: threading.Event, ended: threading.Event) -> None:
    while not (stop.is_set() or ended.is_set()):
        try:
            ended.wait(notifier.step())
        except Exception:  # noqa: BLE001 - the top of the thread: paging outlives its faults
            _log.exception("notify_step_failed")
            ended.wait(RETRY_S)
