"""The whole loop on a real Slurm and a real broker: agent, inventory, worker and `act`."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from actions.access import hashed
from tests.kafka.acting import TOKENS
from tests.kafka.broker import Broker, free_port
from tests.kafka.live import LiveWorker
from tests.kafka.service import Service
from tests.slurm.cluster import Slurm

LINE = (
    "NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus."
)
WAIT_MAX_S = 90.0
POLL_S = 0.02
# So that nothing waits but what is measured: no settle times, and few nodes are enough.
RAILS: dict[str, Any] = {
    "mode_default": "auto", "cooldown_s": 0.0, "settle_s": 0.0, "undo_s": 0.0, "attempts_max": 100,
    "blind_share_max": 1.0, "breaker_share": 1.0, "breaker_nodes": 1_000,
    **{
        f"{scope}_nodes_per_{span}": 1_000
        for scope in ("job", "rack", "leaf", "pool", "cluster") for span in ("hour", "day")
    },
}  # fmt: skip


class Agent(Service):
    """A node's agent whose kernel ring is a pipe that the test writes to."""

    def __init__(self, broker: Broker, directory: Path, node: str) -> None:
        directory.mkdir()
        self.ring = directory / "kmsg"
        os.mkfifo(self.ring)
        port = free_port()
        tables: dict[str, Any] = {
            "kafka": {"brokers": [broker.address]},
            "collect": {
                "node": node, "exporters": [], "nic": False, "kmsg": str(self.ring),
                "journalctl": "", "nvidia_smi": "", "step_socket": "", "ethtool": "",
                "state_dir": str(directory / "state"), "metrics_address": f"127.0.0.1:{port}",
            },
        }  # fmt: skip
        super().__init__(
            directory, f"agent-{node}", ("-m", "nodewarden", "collect"), tables, port,
            prefix="nodewarden_", label="source",
        )  # fmt: skip
        self._said = 0
        self._pipe = -1

    def open(self) -> None:
        """The pipe's other end; waits for the agent."""
        self._pipe = os.open(self.ring, os.O_WRONLY)

    def __exit__(self, *said: Any) -> None:
        """Closes the pipe too."""
        super().__exit__(*said)
        if self._pipe >= 0:
            os.close(self._pipe)

    def speak(self, bus: int) -> float:
        """The kernel says that the GPU at that place is lost; when it did."""
        at_s = time.time()
        head = f"4,{self._said},{int(time.monotonic() * 1e6)},-;"
        self._said += 1
        os.write(self._pipe, (head + LINE.format(bus=bus) + "\n").encode())
        return at_s


class Act(Service):
    """`nodewarden act` that gives commands to Slurm."""

    def __init__(
        self, broker: Broker, directory: Path, slurm: dict[str, Any], worker: str, inventory: str
    ) -> None:
        port, self.api = free_port(), free_port()
        tables: dict[str, Any] = {
            "kafka": {"brokers": [broker.address]},
            "act": {
                "dry_run": False, "executor": "slurm", "slurm": slurm, "rails": RAILS,
                "first_observe_s": 0.0, "session_s": 6.0,
                "address": f"127.0.0.1:{self.api}", "url": f"http://127.0.0.1:{self.api}",
                "metrics_address": f"127.0.0.1:{port}",
                "workers": [worker],
                "inventory": inventory,
                "tokens": {name: hashed(token, role) for name, (role, token) in TOKENS.items()},
            },
        }  # fmt: skip
        super().__init__(
            directory, "act", ("-m", "nodewarden", "act"), tables, port, prefix="nodewarden_act_",
            label="state",
        )  # fmt: skip


class Inventory(Service):
    """`nodewarden inventory` that follows Slurm."""

    def __init__(self, broker: Broker, directory: Path, conf: str) -> None:
        port = free_port()
        tables: dict[str, Any] = {
            "kafka": {"brokers": [broker.address]},
            "inventory": {
                "source": "slurm", "poll_s": 0.5, "metrics_address": f"127.0.0.1:{port}",
                "slurm": {"conf": conf},
            },
            "watch": {"canary_s": 0.0},
        }  # fmt: skip
        super().__init__(
            directory, "inventory", ("-m", "nodewarden", "inventory"), tables, port,
            prefix="nodewarden_inventory_", label="source",
        )  # fmt: skip


class Loop:
    """Everything that runs; `agents` by node."""

    def __init__(self, slurm: Slurm, job: str, act: Act, agent: Callable[[str], Agent]) -> None:
        self.slurm, self.job, self.act, self._agent = slurm, job, act, agent
        self.agents: dict[str, Agent] = {}

    def watch(self) -> None:
        """An agent on each node of the job, and on no other."""
        nodes = self.where()[1]
        for name in self.agents.keys() - set(nodes):
            self.agents.pop(name).__exit__(None, None, None)
        for name in sorted(set(nodes) - self.agents.keys()):
            self.agents[name] = self._agent(name)
            self.agents[name].start()
            self.agents[name].open()

    def stop(self) -> None:
        """End all agents."""
        while self.agents:
            self.agents.popitem()[1].__exit__(None, None, None)

    def where(self) -> tuple[str, list[str]]:
        """The job's state, and its nodes."""
        state, nodes = self.slurm.run(
            "squeue", "--noheader", f"--jobs={self.job}", "--format=%T|%N"
        ).split("|")
        named = self.slurm.run("scontrol", "show", "hostnames", nodes) if nodes else ""
        return state, named.split()

    def restarts(self) -> int:
        """How often the job was requeued."""
        shown = self.slurm.run("scontrol", "show", "job", self.job)
        return int(shown.partition("Restarts=")[2].split()[0])

    def reason(self, node: str) -> str:
        """Of a node that is drained; "" where it is not."""
        shown = self.slurm.run(
            "sinfo", "--noheader", f"--nodes={node}", "--states=drain", "--format=%E"
        )
        return shown.splitlines()[0] if shown else ""

    def until(self, true: Callable[[], bool], what: str) -> float:
        """When it was true first. Raises ServiceGone."""
        end_s = time.monotonic() + WAIT_MAX_S
        while not true():
            if time.monotonic() > end_s or self.act.status is not None:
                raise self.act.gone(f"not {what}")
            time.sleep(POLL_S)
        return time.time()

    def drained(self, node: str) -> float:
        """When it was seen to be drained."""
        return self.until(lambda: self.reason(node) != "", f"{node} drained")

    def running_elsewhere(self, node: str, restarts: int) -> float:
        """When the job ran again, without the node."""
        self.until(lambda: self.restarts() > restarts, f"requeued from {node}")
        at_s = self.until(lambda: self.where()[0] == "RUNNING", "running again")
        assert node not in self.where()[1]
        return at_s


@contextmanager
def loop(broker: Broker, slurm: Slurm, directory: Path, **of_slurm: Any) -> Iterator[Loop]:
    """A job on two nodes, and everything that watches it.

    of_slurm  settings of `act.slurm`
    """
    job = slurm.submit(2)
    with ExitStack() as stack:
        inventory = stack.enter_context(Inventory(broker, directory, slurm.conf))
        worker = stack.enter_context(LiveWorker(broker, directory))
        act = Act(
            broker,
            directory,
            {"conf": slurm.conf, **of_slurm},
            worker.metrics_url,
            inventory.metrics_url,
        )
        stack.enter_context(act)
        numbers = count()  # a node that comes again gets a fresh agent
        running = Loop(
            slurm, job, act, lambda name: Agent(broker, directory / f"{name}-{next(numbers)}", name)
        )
        stack.callback(running.stop)
        running.until(lambda: running.where()[0] == "RUNNING", "running")
        running.watch()
        worker.wait_until(lambda found: found.get(("control_total", "main"), 0) > 0, "settings")
        act.wait_until(lambda found: found.get(("active", ""), 0.0) == 1.0, "active")
        yield running


def settled() -> None:
    """What is printed now is news, and the site knows how it stands."""
    time.sleep(12.0)


def asked(running: Loop, path: str, body: dict[str, object]) -> tuple[int, Any]:
    """A person's request."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.act.api}/v1/{path}", msgspec.json.encode(body),
        {"Authorization": f"Bearer {TOKENS['otto'][1]}"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.status, msgspec.json.decode(answer.read())
