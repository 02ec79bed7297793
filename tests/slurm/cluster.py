"""A real Slurm for tests: `deploy/local/slurm.sh` as an object."""

from __future__ import annotations

import getpass
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

from tests.inventory_fold import PLAIN_PATH, SCRIPTS
from tests.ports import is_free, share

SCRIPT = SCRIPTS / "slurm.sh"
VERB_MAX_S = 120.0
NOTHING_TO_RUN = 3
SPAN = 100  # ports of a cluster: its nodes, the controller, slurmrestd
BASES = range(12_000, 18_000, SPAN)


class SlurmMissing(Exception):
    """Slurm is not installed here; the text says what is missing."""


class SlurmFailed(Exception):
    """It is, and did not do what it was told."""


class Slurm:
    """A cluster of a test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = str(directory / "slurm.conf")
        self._base = free_base()
        self.rest_port = self._base + 95

    def start(self, nodes: int) -> None:
        """Returns when all nodes are idle. Raises SlurmMissing."""
        self._verb("start", str(nodes))

    def rest(self) -> Path:
        """Start slurmrestd; the file that holds its token."""
        token = self.directory / "token"
        token.write_text(self._verb("rest", str(self.rest_port)))
        return token

    def resize(self, nodes: int) -> None:
        """Take nodes out of the configuration."""
        self._verb("resize", str(nodes))

    def end_controller(self) -> None:
        """SIGTERM, so that it saves what it knows; `resize` starts it again."""
        pid = int((self.directory / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        end_s = time.monotonic() + VERB_MAX_S
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < end_s
            time.sleep(0.05)

    def stop(self) -> None:
        """End everything."""
        self._verb("stop")

    def run(self, *words: str) -> str:
        """One of Slurm's commands, as an administrator."""
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=30.0, env={"PATH": PLAIN_PATH, "SLURM_CONF": self.conf, "HOME": "/"},
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def submit(self, nodes: int) -> str:
        """A job that waits; its id."""
        return self.run(
            "sbatch", "--parsable", f"--nodes={nodes}", "--requeue", "--output=/dev/null",
            "--wrap=sleep 600",
        )  # fmt: skip

    def calm(self) -> None:
        """No job, and every node idle."""
        self.run("scancel", f"--user={getpass.getuser()}")
        drained = self.run("sinfo", "--noheader", "--states=drain", "--format=%N")
        if drained:
            self.run("scontrol", "update", f"nodename={drained}", "state=resume")
        end_s = time.monotonic() + VERB_MAX_S
        while self.run("squeue", "--noheader") or \
                self.run("sinfo", "--noheader", "--format=%T") != "idle":  # fmt: skip
            assert time.monotonic() < end_s
            time.sleep(0.1)

    def _verb(self, verb: str, *arguments: str) -> str:
        # Files, not pipes: what it starts keeps them open.
        with (self.directory.parent / "slurm.out").open("w+") as out:
            done = subprocess.run(
                [str(SCRIPT), verb, str(self.directory), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, timeout=VERB_MAX_S,
                env={**os.environ, "SLURM_BASE_PORT": str(self._base)},
            )  # fmt: skip
            out.seek(0)
            said = out.read().strip()
        if done.returncode == NOTHING_TO_RUN:
            raise SlurmMissing(said)
        if done.returncode != 0:
            raise SlurmFailed(f"slurm.sh {verb}: exit {done.returncode}: {said}")
        return said


def free_base() -> int:
    """Where a few ports are free now; no other test process looks there."""
    ours = share(BASES)
    for _ in range(100):
        base = ours[secrets.randbelow(len(ours))]
        if all(is_free(base + place) for place in (1, 2, 3, 4, 90, 95)):
            return base
    raise SlurmMissing("no free ports on 127.0.0.1")
