"""The worker's process: its metrics, and Faust around it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from nodewarden.serving import serve_metrics
from streams.live.app import Reload, run
from streams.live.metrics import WorkerMetrics
from streams.live.worker import StreamWorker


def run_worker(worker: StreamWorker, instance: str, reload: Reload) -> str:
    """Work until SIGTERM; "" after a clean end, else why the process must go.

    Raises SettingsError where the metrics cannot be served.
    """
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(worker))
    address = worker.configuration.stream.metrics_address
    with serve_metrics(registry, address, "stream.metrics_address"):
        return run(worker, instance, reload)
