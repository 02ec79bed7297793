"""Notifying within `nodewarden act`: a thread beside the active instance, and its wiring."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
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
from telemetry.actions import Decision
from telemetry.errors import SourceUnavailable
from telemetry.findings import Incident
from telemetry.ports import Clock
from telemetry.settings import Configuration

LEAVE_S = 15.0
RETRY_S = 5.0

_log = logging.getLogger("nodewarden.notify")


class Telling:
    """What the action service hands incidents to; nothing it does raises."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def tell(self, incident: Incident, decisions: Sequence[Decision]) -> None:
        """The incident and what was decided about it, on disk when this returns."""
        self.notifier.take(incident, decisions[-1] if decisions else None)
        self._save()

    def acknowledge(self, incident: str, by: str) -> int:
        """A person has it; returns how many pages that concerns."""
        count = self.notifier.acknowledge(incident, by)
        self._save()
        return count

    def changed(self, command: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        """Nodes were isolated or given back."""
        self.notifier.changed(command, incident, summary, targets)
        self._save()

    def _save(self) -> None:
        try:
            self.notifier.save()
        except SourceUnavailable as error:  # the next step tries again, and counts it
            _log.error("notify_not_saved error=%s", error)


@contextmanager
def notifying(
    configuration: Configuration, clock: Clock, registry: CollectorRegistry,
    stop: threading.Event, places: Places = nowhere,
) -> Iterator[Telling | None]:  # fmt: skip
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
        telling = Telling(Notifier(board, channels, clock, NotifyMetrics(registry)))
        arguments = (telling.notifier, stop, ended)
        thread = threading.Thread(target=_loop, args=arguments, name="notify", daemon=True)
        thread.start()
        try:
            yield telling
        finally:
            ended.set()
            thread.join(LEAVE_S)
            telling._save()
    finally:
        store.close()


def _loop(notifier: Notifier, stop: threading.Event, ended: threading.Event) -> None:
    while not (stop.is_set() or ended.is_set()):
        try:
            ended.wait(notifier.step())
        except Exception:  # noqa: BLE001 - the top of the thread: paging outlives its faults
            _log.exception("notify_step_failed")
            ended.wait(RETRY_S)
