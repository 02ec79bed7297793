"""A real Prometheus for tests: `deploy/local/prometheus.sh` as an object."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.broker import free_port

SCRIPT = Path(__file__).parents[2] / "deploy" / "local" / "prometheus.sh"
VERB_MAX_S = 60.0


class PrometheusMissing(Exception):
    """It cannot be run on this machine."""


class Prometheus:
    """One server and its data; `start` after `stop` or `kill` goes on with the same data."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("prometheus") is None:
            raise PrometheusMissing("a real Prometheus is needed, which is not installed")
        self.directory = directory
        self.port = free_port()
        self._targets: tuple[str, ...] = ()
        self._scrape = "1s"
        self._rules: Path | None = None

    @property
    def url(self) -> str:
        """Its base address."""
        return f"http://127.0.0.1:{self.port}"

    def scrape(self, targets: Sequence[str], every: str, rules: Path | None = None) -> None:
        """Start it over these targets, with these alert rules."""
        self._targets, self._scrape, self._rules = tuple(targets), every, rules
        self.start()

    def start(self) -> None:
        """Return when it is ready."""
        self._verb("start", str(self.port), *self._targets)

    def kill(self) -> None:
        """SIGKILL."""
        self._verb("kill")

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._verb("stop")

    def _verb(self, verb: str, *arguments: str) -> None:
        subprocess.run(
            [str(SCRIPT), verb, str(self.directory), *arguments],
            stdin=subprocess.DEVNULL, timeout=VERB_MAX_S, check=True,
            env={
                **os.environ, "PROMETHEUS_SCRAPE": self._scrape,
                "PROMETHEUS_RULES": str(self._rules or ""),
            },
        )  # fmt: skip
