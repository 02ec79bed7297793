"""The live worker as a process of its own, as a supervisor runs it, and commands beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from collectors.broker.consumer import KafkaLogReader
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY
from tests.kafka.broker import Broker, free_port
from tests.kafka.conftest import SHARDS
from tests.kafka.reading import WallClock

ROOT = Path(__file__).parents[2]
STREAM = ("-m", "nodewarden", "stream")
DEADLINE_S = 60.0
POLL_S = 0.05
STDERR_SHOWN = 40  # lines

Tables = Mapping[str, Any]  # of the settings file; a table is a mapping


class WorkerGone(AssertionError):
    """The worker did not do what the test waits for; the text ends with what it said."""


class LiveWorker:
    """One worker process: a settings file of its own, a metrics port, what it said in a file.

    Use it as a context manager: at the end it is stopped by SIGTERM, which must end it with 0.
    A stopped or killed one may be started again, and has the same settings.

    program   what Python runs; `--config FILE` follows. A test with a probe has its own
    settings  more tables of the settings file: {"engine": {"zscore": {"sigmas": 3.0}}}
    """

    def __init__(
        self, broker: Broker, directory: Path, instance: str = "worker-0", *,
        program: Sequence[str] = STREAM, shards: Sequence[str] = SHARDS,
        history: Sequence[str] = ("history",), settings: Tables | None = None,
        environ: Mapping[str, str] | None = None, **stream: float,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.shards = tuple(shards)
        self.config = directory / f"{instance}.toml"
        self.stderr = directory / f"{instance}.stderr"
        self._program = tuple(program)
        self._environ = dict(environ or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._tables: dict[str, Any] = {
            "shards": self.shards,
            "history_shards": tuple(history),
            "kafka": {"brokers": [broker.address]},
            "stream": {
                "instance": instance, "session_s": 6.0, "snapshot_s": 1.0, "settings_poll_s": 0.2,
                "metrics_address": f"127.0.0.1:{self._port}", **stream,
            },
        }  # fmt: skip
        self.change_settings(settings or {})

    # -- its settings file

    def change_settings(self, settings: Tables) -> None:
        """Write the file anew, these tables beside the worker's own."""
        self.write_settings(toml({**self._tables, **settings}))

    def write_settings(self, text: str) -> None:
        """Replace the file at once, as an editor does."""
        draft = self.config.with_suffix(".draft")
        draft.write_text(text, "utf-8")
        draft.replace(self.config)

    # -- its life

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None, "the worker is not started"
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        assert self._process is not None, "the worker is not started"
        return self._process.poll()

    def start(self) -> None:
        """Start the process; it need not be ready yet."""
        with self.stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "--config", str(self.config)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                env={**os.environ, **self._environ},
            )  # fmt: skip

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL, as a machine that loses power; its exit status."""
        return self.end(signal.SIGKILL)

    def end(self, sent: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        assert self._process is not None, "the worker is not started"
        if self._process.poll() is None:
            self._process.send_signal(sent)
        return self.wait()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Until it ended by itself; its exit status."""
        assert self._process is not None, "the worker is not started"
        try:
            return self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self.gone(f"does not end within {deadline_s:g} s") from None

    def __enter__(self) -> LiveWorker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._process is None:
            return
        was_there = self._process.poll() is None
        status = self.stop()
        if error is not None and not isinstance(error, WorkerGone):
            error.add_note(self._last_words())
        elif error is None and was_there and status != 0:
            raise self.gone(f"ended with {status} after SIGTERM")

    # -- what it says of itself

    def metrics(self) -> dict[tuple[str, str], float]:
        """(name without `nodewarden_stream_`, shard or "") -> value; {} while it does not answer.

        Of a metric with more labels the values are added up.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as got:
                text = got.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name.removeprefix("nodewarden_stream_"), sample.labels.get("shard", "")
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def wait_until(
        self, true: Callable[[dict[tuple[str, str], float]], bool], what: str,
        deadline_s: float = DEADLINE_S,
    ) -> dict[tuple[str, str], float]:  # fmt: skip
        """The metrics of which `true` holds first. Raises WorkerGone."""
        end_s = time.monotonic() + deadline_s
        while True:
            if self.status is not None:
                raise self.gone(f"ended with {self.status} before {what}")
            found = self.metrics()
            if found and true(found):
                return found
            if time.monotonic() > end_s:
                raise self.gone(f"not {what} within {deadline_s:g} s; metrics: {found}")
            time.sleep(POLL_S)

    def wait_caught_up(
        self, offset: int | None = None, shard: str = "history", deadline_s: float = DEADLINE_S
    ) -> dict[tuple[str, str], float]:
        """Until what was said of all records before `offset` is acknowledged; None: all there are.

        The metrics as they are then.
        """
        wanted = log_end(self.broker, self.shards.index(shard)) if offset is None else offset
        return self.wait_until(
            lambda found: found.get(("settled_offset", shard), -1.0) >= wanted,
            f"caught up with {shard} to offset {wanted}",
            deadline_s,
        )

    def lines(self) -> list[str]:
        """What it wrote to standard error so far."""
        return self.stderr.read_text("utf-8", "replace").splitlines()

    def gone(self, why: str) -> WorkerGone:
        """The error that says why, and what the worker said last."""
        return WorkerGone(f"worker {self.config.stem}: {why}\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join([f"-- {self.stderr.name}:", *self.lines()[-STDERR_SHOWN:]])


def log_end(broker: Broker, partition: int, topic: str = TELEMETRY) -> int:
    """The offset that the partition's next record will get."""
    reader = KafkaLogReader(KafkaSettings(brokers=(broker.address,)), WallClock())
    try:
        return reader.bounds([(topic, partition)])[topic, partition][1]
    finally:
        reader.close()


def nodewarden(*arguments: str | Path, statuses: Sequence[int] = (0,)) -> str:
    """One command as a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120.0,
        check=False,
    )  # fmt: skip
    assert done.returncode in statuses, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout


def toml(tables: Tables, above: str = "") -> str:
    """A settings file; its scalars and lists are JSON's, which TOML reads too."""
    plain = {key: value for key, value in tables.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    if above and plain:
        lines.insert(0, f"[{above}]")
    for key, value in tables.items():
        if isinstance(value, Mapping):
            lines.append(toml(value, f"{above}.{key}" if above else key))
    return "\n".join(lines) + "\n"
