"""What the long-running services share: metrics over HTTP, and an end on SIGTERM within seconds."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prometheus_client import CollectorRegistry, start_http_server

from telemetry.addresses import host_port
from telemetry.errors import SettingsError

STOP_MAX_S = 4.5  # a call that waits for a lost broker must not hold the end up longer

_log = logging.getLogger("nodewarden.service")


@contextmanager
def serve_metrics(registry: CollectorRegistry, address: str, key: str) -> Iterator[None]:
    """Serve a registry at HOST:PORT while the block runs; "" serves none.

    key     the setting that `address` is the value of
    raises  SettingsError where the address cannot be served
    """
    if not address:
        yield
        return
    place = host_port(address)
    if place is None:
        raise SettingsError(f"{key}: {address!r}: expected HOST:PORT, as 127.0.0.1:9109")
    try:
        server, thread = start_http_server(place[1], place[0], registry)
    except OSError as error:
        raise SettingsError(f"{key}: {address}: {error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set while the block runs.

    Where the block does not end in `STOP_MAX_S` after it, the process does, with status 0: only
    for services that lose nothing when they are killed.
    """
    stop = threading.Event()
    last_resort = threading.Timer(STOP_MAX_S, _end)
    last_resort.daemon = True

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            last_resort.start()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        last_resort.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _end() -> None:
    _log.warning("stop_forced after_s=%.1f", STOP_MAX_S)
    os._exit(0)
