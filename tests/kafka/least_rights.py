"""Every service at work on a secured broker, each as its own user with its own rights only."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from actions.access import hashed
from tests.kafka.broker import free_port
from tests.kafka.live import LiveArchiver, LiveWorker
from tests.kafka.secured import Secured
from tests.kafka.service import ROOT, Metrics, Service, nodewarden

TOKEN = "s" * 32
COMMAND_MAX_S = 60.0
ENGINE = {"ticks": {"interval_default_s": 1.0, "beat_s": 0.5}}
XID = "NVRM: Xid (PCI:0000:0a:00): 79, pid=1, GPU has fallen off the bus."
BOOT = "5c1b0a9e-1111-4222-8333-444455556666"


class Site:
    """A node with an agent, a node that sends its syslog, and all services; in `with`, running."""

    def __init__(self, secured: Secured, directory: Path) -> None:
        self.secured, self.directory = secured, directory
        self.kmsg, self.syslog_port = directory / "kmsg", free_port()
        self.kmsg.touch()
        boot = directory / "proc" / "sys" / "kernel" / "random" / "boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text(f"{BOOT}\n")
        self.jobs = directory / "jobs.json"
        self.jobs.write_text(json.dumps({"jobs": [{"id": "j", "nodes": ["n1", "n2"]}]}))
        self.worker = LiveWorker(
            secured.broker, directory, settings={"engine": ENGINE, "kafka": secured.kafka("stream")}
        )
        self.archiver = LiveArchiver(secured.broker, directory, directory / "archive")
        self.archiver.change_settings(secured.tables("archive"))
        self.inventory = self._service(
            "inventory", {"watch": {"canary_s": 1.0}, "engine": ENGINE}, "--from", self.jobs,
            label="shard", poll_s=0.5,
        )  # fmt: skip
        self.act = self._act()
        self.agent = self._collect("agent", {}, node="n1", kmsg=str(self.kmsg))
        self.central = self._collect(
            "central", {"syslog": {"address": f"127.0.0.1:{self.syslog_port}"}}, kmsg=""
        )

    def _act(self) -> Service:
        api = f"127.0.0.1:{free_port()}"
        return self._service(
            "act", {}, prefix="nodewarden_act_", label="state", address=api, url=f"http://{api}",
            workers=[], inventory="", tokens={"otto": hashed(TOKEN, "operator")},
        )  # fmt: skip

    def _collect(self, user: str, tables: dict[str, Any], **collect: Any) -> Service:
        return self._service(
            "collect", tables, user=user, exporters=[], journalctl="", nvidia_smi="", ethtool="",
            proc_path=str(self.directory / "proc"), sys_path=str(self.directory / "sys"),
            state_dir=str(self.directory / user), step_socket="", **collect,
        )  # fmt: skip

    def _service(
        self, command: str, tables: dict[str, Any], *arguments: str | Path, user: str = "",
        prefix: str = "nodewarden_", label: str = "kind", **own: Any,
    ) -> Service:  # fmt: skip
        """`own`: settings of the command's own table."""
        port, user = free_port(), user or command
        own["metrics_address"] = f"127.0.0.1:{port}"
        return Service(
            self.directory, user, ("-m", "nodewarden", command, *map(str, arguments)),
            {**self.secured.tables(user), **tables, command: own}, port,
            prefix=prefix, label=label,
        )  # fmt: skip

    def services(self) -> tuple[Service, ...]:
        """In the order in which they start."""
        return (
            self.worker, self.archiver, self.inventory, self.act, self.agent, self.central,
        )  # fmt: skip

    def said(self, command: str, *arguments: str) -> Any:
        """What a command of a person who may only read prints as JSON; `status` may end with 1."""
        config = self.secured.config(self.directory, "reader")
        shown = nodewarden(command, "--json", *arguments, "--config", config, statuses=(0, 1))
        return json.loads(shown)

    def ask(self, *words: str) -> str:
        """A request to `act` by one of its operators; what it answers."""
        done = subprocess.run(
            [sys.executable, "-m", "nodewarden", *words, "--config", str(self.act.config)],
            cwd=ROOT, env={**os.environ, "NODEWARDEN_ACT__TOKEN": TOKEN}, capture_output=True,
            text=True, timeout=COMMAND_MAX_S, check=True,
        )  # fmt: skip
        return done.stdout


@contextmanager
def running(site: Site) -> Iterator[None]:
    """All services until the end of the block; at their end each must end with 0."""
    with ExitStack() as stack:
        for service in site.services():
            stack.enter_context(service)
        yield


def check_all_work(secured: Secured, directory: Path) -> None:
    """What each service exists for comes about, from a kernel line to the decision about it."""
    operator = secured.config(directory, "operator")
    assert "topics are fine\n" == nodewarden("topics", "check", "--config", operator)
    site = Site(secured, directory)
    with running(site):
        site.act.wait_until(lambda m: m.get(("active", "")) == 1.0, "active")
        site.central.wait_until(lambda m: ("central_syslog_taken_total", "") in m, "listening")
        site.inventory.wait_until(came_out, "canary came out")
        with site.kmsg.open("a") as file:
            file.write(f"3,1,1000000,-;{XID}\n")
        with socket.create_connection(("127.0.0.1", site.syslog_port)) as sock:
            sock.sendall(f"<3>Nov 30 01:00:00 n2 kernel: {XID}\n".encode())
        for service in (site.agent, site.central):
            service.wait_until(
                lambda m: m.get(("outbox_acknowledged_total", "event"), 0.0) >= 1.0, "told"
            )
        site.act.wait_until(decided, "decided")
        site.archiver.wait_taken(1, "nodewarden.actions")
        assert "released by otto" in site.ask("release", "n1")
        site.act.wait_until(lambda m: ("outcomes_total", "") in m, "carried out")
        kinds = {one["kind"] for one in site.said("incidents")["incidents"]}
        assert "gpu_lost" in kinds
        assert 2 == site.said("status")["expected"]
    assert not [line for line in site.act.lines() if "control_unsent" in line]
    assert not [s.config.stem for s in site.services() if "Traceback" in "".join(s.lines())]


def came_out(metrics: Metrics) -> bool:
    return metrics.get(("canary_last_seen_timestamp_seconds", "main"), 0.0) > 0.0


def decided(metrics: Metrics) -> bool:
    return any(name == "decisions_total" and value for (name, _), value in metrics.items())
