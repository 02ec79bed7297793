"""A small simulated cluster in real time: its records reach the live shard when they are due."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from collectors.broker.publisher import KafkaPublisher
from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from nodewarden.clock import SystemClock
from telemetry.codec import encode
from telemetry.records import Frame, Record, Settings
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker

INTERVAL_S, STEP_S = 2.0, 0.4
# What the engine has to know of such a cluster, as its settings file says it.
ENGINE: dict[str, dict[str, object]] = {
    "ticks": {"interval_s": {"gpu": INTERVAL_S, "nic": INTERVAL_S}},
    "should_be_zero": {"hold_s": 6.0},
    "zscore": {"window_s": 10.0},
    "robust_peers": {"covered_s": 12.0, "samples_min": 5, "mates_s": 4.0},
    "straggler": {"baseline_min_steps": 5, "warmup_steps": 2},
}


class LiveCluster:
    """Publishes from a thread of its own until `seconds` are over, or until `stop`.

    The end of the block waits for that.

    late     every so many frames one comes five intervals late
    ahead_s  until it begins
    """

    def __init__(
        self, broker: Broker, seconds: float, faults: Sequence[str], *, nodes: int = 6,
        late: int = 0, ahead_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._late = late
        self.start_s = float(round(time.time() + ahead_s))
        self.run = Simulation(
            nodes, 2, minutes=seconds / 60.0, seed=7,
            faults=[parse_fault(text) for text in faults], start_s=self.start_s,
            gpu_interval_s=INTERVAL_S, nic_interval_s=INTERVAL_S, step_time_s=STEP_S,
        )  # fmt: skip
        self.failed: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="cluster")

    def __enter__(self) -> LiveCluster:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is not None:
            self.stop()
        self._thread.join()
        assert self.failed is None, self.failed

    def stop(self) -> None:
        """It reports no more."""
        self._stopped.set()

    def _publish(self) -> None:
        publisher = KafkaPublisher(KafkaSettings(brokers=(self._broker.address,)), SystemClock())
        try:
            for due_s, record in self._due():
                if self._stopped.wait(max(due_s - time.time(), 0.0)):
                    break
                kind = str(record.__struct_config__.tag).encode()
                publisher.publish(
                    TELEMETRY, encode(record), key=b"main", partition=0, headers=[("kind", kind)]
                )
            publisher.flush()
        except Exception as error:  # noqa: BLE001 - shown at the end of the block
            self.failed = error
        finally:
            publisher.close()

    def _due(self) -> list[tuple[float, Record]]:
        """All records by the time they are sent; the worker's own settings are in force."""
        log: list[tuple[float, int, Record]] = []
        for number, (arrival_s, record) in enumerate(self.run.records()):
            if isinstance(record, Settings):
                continue
            is_late = self._late and isinstance(record, Frame) and number % self._late == 0
            log.append((arrival_s + 5.0 * INTERVAL_S * bool(is_late), number, record))
        log.sort(key=lambda item: item[:2])
        return [(due_s, record) for due_s, _, record in log]
