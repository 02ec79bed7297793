"""A long-running command as a process of its own: its settings file, metrics port, last words."""

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
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
POLL_S = 0.05
STDERR_SHOWN = 40  # lines

Tables = Mapping[str, Any]  # of the settings file; a table is a mapping
Metrics = dict[tuple[str, str], float]


class ServiceGone(AssertionError):
    """The process did not do what the test waits for; the text ends with what it said."""


class Service:
    """One process: a settings file of its own, a metrics port, what it said in a file.

    Use it as a context manager: at the end it is stopped by SIGTERM, which must end it with 0.
    A stopped or killed one may be started again, and has the same settings.

    name      of its files in `directory`
    program   what Python runs; `--config FILE` follows
    port      where it serves its metrics, as `tables` say
    prefix    of its metrics' names, left out in `metrics()`
    label     of its metrics, the second part of the keys of `metrics()`
    """

    def __init__(
        self, directory: Path, name: str, program: Sequence[str], tables: Tables, port: int, *,
        prefix: str, label: str, environ: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.config = directory / f"{name}.toml"
        self.stderr = directory / f"{name}.stderr"
        self._program = tuple(program)
        self._environ = dict(environ or {})
        self._tables = dict(tables)
        self._port = port
        self._prefix, self._label = prefix, label
        self._process: subprocess.Popen[bytes] | None = None
        self.change_settings({})

    # -- its settings file

    def change_settings(self, settings: Tables) -> None:
        """Write the file anew, these tables beside its own."""
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
        assert self._process is not None, "it is not started"
        return self._process.pid

    @property
    def metrics_url(self) -> str:
        """Where it serves its metrics."""
        return f"http://127.0.0.1:{self._port}/metrics"

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        assert self._process is not None, "it is not started"
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
        assert self._process is not None, "it is not started"
        if self._process.poll() is None:
            self._process.send_signal(sent)
        return self.wait()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Until it ended by itself; its exit status."""
        assert self._process is not None, "it is not started"
        try:
            return self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self.gone(f"does not end within {deadline_s:g} s") from None

    def __enter__(self) -> Self:
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
        if error is not None and not isinstance(error, ServiceGone):
            error.add_note(self._last_words())
        elif error is None and was_there and status != 0:
            raise self.gone(f"ended with {status} after SIGTERM")

    # -- what it says of itself

    def metrics(self) -> Metrics:
        """(name without the prefix, value of the label or "") -> value; {} without an answer.

        Of a metric with more labels the values are added up.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as got:
                text = got.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}
        found: Metrics = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name.removeprefix(self._prefix), sample.labels.get(self._label, "")
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def wait_until(
        self, true: Callable[[Metrics], bool], what: str,
        deadline_s: float = DEADLINE_S,
    ) -> Metrics:  # fmt: skip
        """The metrics of which `true` holds first. Raises ServiceGone."""
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

    def lines(self) -> list[str]:
        """What it wrote to standard error so far."""
        return self.stderr.read_text("utf-8", "replace").splitlines()

    def gone(self, why: str) -> ServiceGone:
        """The error that says why, and what the worker said last."""
        return ServiceGone(f"{self.config.stem}: {why}\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join([f"-- {self.stderr.name}:", *self.lines()[-STDERR_SHOWN:]])


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
