"""Exporters of a simulated site: a small HTTP server a node that says what the simulator said.

`Replayed` serves samples under the simulator's own time stamps, the next moment at each scrape, so
that half an hour is scraped in half a minute. `Current` serves what is true now. `Counting` serves
numbers that rise with each scrape.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from evaluation.cluster import JOB
from evaluation.simulator import Simulation
from telemetry.records import Steps
from tests.kafka.broker import free_port

PAGE_S = 60.0
_GAUGES = {"step_time_s": "training_step_time_seconds", "loss": "training_loss"}

_OF_TARGET = re.compile(r',?(?:instance|job)="[^"]*"')  # Prometheus adds them

Sample = tuple[float, str, str]  # time, series as text, value


class Exporter(Protocol):
    """What one target answers."""

    def page(self) -> str:
        """The text of the next scrape."""
        ...


class Replayed:
    """The next `PAGE_S` of the past at each scrape, and two before again: a scrape may fail."""

    def __init__(self, samples: Sequence[Sample], start_s: float) -> None:
        self._pages: dict[int, list[Sample]] = defaultdict(list)
        for sample in samples:
            self._pages[int((sample[0] - start_s) // PAGE_S)].append(sample)
        self._last = max(self._pages)
        self._at = -1
        self.is_over = False
        self._lock = threading.Lock()

    def page(self) -> str:
        with self._lock:
            self._at += 1
            self.is_over = self._at > self._last + 3
            samples = [one for at in range(self._at - 2, self._at + 1) for one in self._pages[at]]
        return "".join(f"{series} {value} {at * 1e3:.0f}\n" for at, series, value in samples)


class Current:
    """What the last `SPAN_S` by the clock brought, each sample under its own time stamp."""

    SPAN_S = 4.0  # more than a scrape's interval: one may fail

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = sorted(samples, key=itemgetter(0))

    def page(self) -> str:
        now_s = time.time()
        first = bisect_right(self._samples, now_s - self.SPAN_S, key=itemgetter(0))
        last = bisect_right(self._samples, now_s, key=itemgetter(0))
        return "".join(
            f"{series} {value} {at * 1e3:.0f}\n" for at, series, value in self._samples[first:last]
        )


class Counting:
    """A GPU whose temperature tells the number of the scrape: 0, 1, ..., 99, 0, ..."""

    def __init__(self, node: str) -> None:
        self._node, self.scrapes = node, 0
        self.xid = 0
        self._lock = threading.Lock()

    def page(self) -> str:
        with self._lock:
            number, self.scrapes = self.scrapes, self.scrapes + 1
        labels = f'{{Hostname="{self._node}",UUID="GPU-{self._node}",gpu="0"}}'
        return (
            f"DCGM_FI_DEV_GPU_TEMP{labels} {number % 100}\n"
            f"DCGM_FI_DEV_XID_ERRORS{labels} {self.xid}\n"
            f'training_step{{job_id="j1"}} {number // 2}\n'
            f'training_step_time_seconds{{job_id="j1"}} 2.5\n'
        )


def capture_samples(directory: Path) -> dict[str, list[Sample]]:
    """Node -> what a capture's metrics say of it, as its exporters say it."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for file in sorted(directory.glob("*.om")):
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                series, value, at = line.rsplit(" ", 2)
                label = 'Hostname="' if 'Hostname="' in series else 'instance="'
                node = series.partition(label)[2].partition('"')[0].partition(":")[0]
                found[node].append((float(at), _OF_TARGET.sub("", series), value))
    return found


def training_samples(run: Simulation) -> list[Sample]:
    """The job's steps as the gauges of a training exporter."""
    labels = f'{{job_id="{JOB}"}}'
    found: list[Sample] = []
    for _, record in run.records():
        if isinstance(record, Steps) and record.node == "":
            at = round(record.at, 3)
            found.append((at, f"training_step{labels}", str(record.step[0])))
            for column, name in _GAUGES.items():
                values = getattr(record, column)
                if values and values[0] is not None:
                    found.append((at, f"{name}{labels}", repr(values[0])))
    return found


@contextmanager
def serving(exporters: Mapping[str, Exporter]) -> Iterator[dict[str, str]]:
    """Name -> HOST:PORT=NAME:9100, as `prometheus.sh` takes it: an address each on the loopback."""
    port = free_port()
    with ExitStack() as stack:
        targets = {}
        for number, (name, exporter) in enumerate(exporters.items(), 2):
            host = f"127.0.{number // 250}.{number % 250 + 1}"
            stack.enter_context(_server(host, port, exporter))
            targets[name] = f"{host}:{port}={name}:9100"
        yield targets


@contextmanager
def _server(host: str, port: int, exporter: Exporter) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporter.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # a scrape that took too long
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
