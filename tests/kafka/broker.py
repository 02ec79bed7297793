"""A real Apache Kafka for tests: `deploy/local/kafka.sh` as an object."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

from tests import ports

SCRIPT = Path(__file__).parents[2] / "deploy" / "local" / "kafka.sh"
VERB_MAX_S = 240.0
NOTHING_TO_RUN = 3  # the script's exit status where Java, Maven or the jars are missing
Proof = Literal["passwords", "certificates"]
# Tests that send records larger than topics allow raise the topic's own limit up to this.
SETTINGS = "message.max.bytes=12000000 log.retention.check.interval.ms=1000"


class BrokerMissing(Exception):
    """There is no broker to be had on this machine; the text says what is missing."""


class BrokerFailed(Exception):
    """It could be had, and did not do what it was told."""


class Broker:
    """One broker and its data; `start` after `kill` or `stop` goes on with the same data."""

    def __init__(
        self, directory: Path, advertised_port: int | None = None, *,
        secure: Proof | None = None,
    ) -> None:  # fmt: skip
        """`advertised_port`: where it tells clients to find it, a proxy's port.

        secure  with TLS, an authorizer that gives nobody rights, and how clients prove themselves
        """
        self._secure = secure
        self.directory = directory
        self.port = free_port()
        self._advertised_port = advertised_port or self.port

    @property
    def address(self) -> str:
        """HOST:PORT, as clients are told."""
        return f"127.0.0.1:{self._advertised_port}"

    def start(self) -> None:
        """Return when the broker answers; raises BrokerMissing where it cannot be run."""
        for program in ("java", "mvn"):
            if shutil.which(program) is None:
                raise BrokerMissing(f"real Apache Kafka needs {program}, which is not installed")
        self._verb("start", str(self.port), *_HOW[self._secure][1:])

    def kill(self) -> None:
        """SIGKILL."""
        self._verb("kill")

    def stop(self) -> None:
        """SIGTERM and wait."""
        self._verb("stop")

    def _verb(self, verb: str, *arguments: str) -> None:
        advertised = f"advertised.listeners={_HOW[self._secure][0]}://{self.address}"
        done = subprocess.run(
            [str(SCRIPT), verb, str(self.directory), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERB_MAX_S,
            check=False,
            env={**os.environ, "KAFKA_EXTRA": f"{SETTINGS} {advertised}", "KAFKA_ACLS": "none"},
        )
        if done.returncode == NOTHING_TO_RUN:
            raise BrokerMissing(done.stderr.strip())
        if done.returncode != 0:
            raise BrokerFailed(f"kafka.sh {verb}: exit {done.returncode}: {done.stderr.strip()}")


# Its listener, and the script's option.
_HOW: dict[Proof | None, tuple[str, ...]] = {
    None: ("PLAINTEXT",),
    "passwords": ("SASL_SSL", "--secure"),
    "certificates": ("SSL", "--certificates"),
}


def free_port(count: int = 2) -> int:
    """A port that is free now, and so are those after it: a broker's controller takes the next."""
    return ports.free_port(count)
