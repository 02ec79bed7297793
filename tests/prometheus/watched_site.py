"""A small site with everything that watches it: nodes, worker, inventory, Prometheus, outside."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from collectors.broker.publisher import KafkaPublisher
from nodewarden.clock import SystemClock
from telemetry.codec import encode
from telemetry.records import Frame
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker, free_port
from tests.kafka.live import LiveWorker
from tests.kafka.service import Metrics, Service
from tests.prometheus.server import Prometheus

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "nodewarden.rules.yml"
NODES = tuple(f"n{number}" for number in range(6))
FRAMES = {
    "gpu": ({"gpu": ["GPU-1"]}, {"gpu_temperature_celsius": [50.0]}),
    "nic": ({"nic": ["mlx5_0/1"]}, {"nic_link_downed_total": [0.0]}),
}
ENGINE = {
    "ticks": {"interval_s": {"gpu": 1.0, "nic": 1.0}, "beat_s": 0.5},
    "silence": {"patience_s": 3.0, "patience_ticks": 2},
}
DEADLINE_S = 60.0


def hasty(rules: str) -> str:
    """The rules with seconds in place of their minutes; nothing else is another."""
    rules = re.sub(r"\bfor: \d+[ms]", "for: 1s", rules)
    return re.sub(r"\[\d+m\]", "[10s]", rules)


class Nodes:
    """They send a frame of each source a second, except of those in `muted`."""

    def __init__(self, broker: Broker) -> None:
        self.muted: set[str] = set()
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodes")
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        publisher = KafkaPublisher(KafkaSettings(brokers=(self._broker.address,)), SystemClock())
        started_at, number = time.time(), 0
        while not self._stop.wait(1.0):
            for source in sorted(set(FRAMES) - self.muted):
                for node in NODES:
                    value = encode(self._frame(node, source, started_at, number))
                    publisher.publish(TELEMETRY, value, key=b"main", partition=0)
            publisher.flush()
            number += 1
        publisher.close()

    def _frame(self, node: str, source: str, started_at: float, number: int) -> Frame:
        entities, metrics = FRAMES[source]
        now_s = time.time()
        return Frame(
            at=now_s, node=node, source=source, started_at=started_at, seq=number, sent_at=now_s,
            entities=entities, metrics={name: list(values) for name, values in metrics.items()},
        )  # fmt: skip


class Outside:
    """What waits for the pings."""

    def __init__(self) -> None:
        outside = self
        self.pings = 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outside.pings += self.path == "/ping/a-secret"
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/ping/a-secret"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class WatchedSite:
    """All of it, running. `deaf`: while this file exists canaries do not come out."""

    def __init__(
        self, nodes: Nodes, outside: Outside, worker: Service, inventory: Service,
        prometheus: Prometheus, deaf: Path,
    ) -> None:  # fmt: skip
        self.nodes, self.outside, self.deaf = nodes, outside, deaf
        self.worker, self.inventory, self._prometheus = worker, inventory, prometheus

    def firing(self) -> set[str]:
        """The alerts that fire."""
        with urllib.request.urlopen(f"{self._prometheus.url}/api/v1/alerts", timeout=10) as got:
            alerts = json.load(got)["data"]["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def wait(self, true: Callable[[], bool], what: str) -> None:
        """Until it is true. Raises ServiceGone with what both services said."""
        end_s = time.monotonic() + DEADLINE_S
        while not true():
            if time.monotonic() > end_s:
                said = self.inventory.gone("and the inventory said")
                raise self.worker.gone(f"not {what}; {self.firing()}; worker said") from said
            time.sleep(0.2)

    def wait_well(self) -> None:
        """Until pings go out and no alert fires."""
        before = self.outside.pings
        self.wait(lambda: self._runs() and self.outside.pings > before + 1, "pinged")
        self.wait(lambda: not self.firing(), "without alerts")

    def _runs(self) -> bool:
        """Raises ServiceGone where a service ended by itself."""
        for service in (self.worker, self.inventory):
            if service.status is not None:
                raise service.gone(f"ended with {service.status}")
        return True

    def wait_firing(self, alert: str) -> None:
        self.wait(lambda: alert in self.firing(), f"firing {alert}")

    def withheld(self, reason: str) -> float:
        """So many pings were not sent for this reason."""
        metrics: Metrics = self.inventory.metrics()
        return metrics.get(("deadman_withheld_pings_total", reason), 0.0)

    def assert_withheld(self, reason: str) -> None:
        """No ping goes out through two more occasions."""
        first = self.withheld(reason)
        self.wait(lambda: self.withheld(reason) > first, f"withheld: {reason}")
        pings, first = self.outside.pings, self.withheld(reason)
        self.wait(lambda: self.withheld(reason) >= first + 2, f"withheld again: {reason}")
        assert pings == self.outside.pings


@contextmanager
def watched_site(broker: Broker, directory: Path) -> Iterator[WatchedSite]:
    """Running until the end of the block."""
    rules, jobs, deaf = directory / "rules.yml", directory / "jobs.json", directory / "deaf"
    rules.write_text(hasty(RULES.read_text(encoding="utf-8")))
    jobs.write_text(json.dumps({"jobs": [{"id": "a", "nodes": list(NODES)}]}))
    with ExitStack() as stack:
        outside = Outside()
        stack.callback(outside.close)
        worker_port, inventory_port = free_port(), free_port()
        metrics_address = f"127.0.0.1:{worker_port}"
        worker = LiveWorker(
            broker, directory, program=("-m", "tests.prometheus.deaf_worker", str(deaf)),
            settings={
                "engine": ENGINE,
                "stream": {
                    "instance": "worker-0", "session_s": 6.0, "metrics_address": metrics_address,
                },
            },
        )  # fmt: skip
        inventory = Service(
            directory, "inventory", ("-m", "nodewarden", "inventory", "--from", str(jobs)),
            {
                "kafka": {"brokers": [broker.address]}, "engine": ENGINE,
                "inventory": {"metrics_address": f"127.0.0.1:{inventory_port}", "poll_s": 0.5},
                "watch": {"canary_s": 1.0, "canary_late_s": 2.0},
                "deadman": {
                    "url": outside.url, "every_s": 1.0,
                    "workers": [f"http://{metrics_address}/metrics"],
                },
            },
            inventory_port, prefix="nodewarden_", label="reason",
        )  # fmt: skip
        prometheus = Prometheus(directory / "prometheus")
        stack.enter_context(worker)
        stack.enter_context(inventory)
        nodes = Nodes(broker)
        stack.callback(nodes.close)
        stack.callback(prometheus.stop)
        prometheus.scrape([metrics_address, f"127.0.0.1:{inventory_port}"], "1s", rules)
        yield WatchedSite(nodes, outside, worker, inventory, prometheus, deaf)
