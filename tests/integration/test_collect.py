"""`nodewarden collect` as a process: what it prints, how it ends, and sources that misbehave."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.agent import Agent
from collectors.agent.counts import Counts
from collectors.step_reporter import StepReporter
from nodewarden.clock import SystemClock
from nodewarden.collecting import build_agent
from nodewarden.settings_file import load
from telemetry.errors import SettingsError
from tests.agent_fakes import FakeExporter, MemorySink, fake_exporter, tree

ROOT = Path(__file__).parents[2]
BOOT = "5c1b0a9e-1111-4222-8333-444455556666"
DEADLINE_S = 30.0
Said = dict[str, Any]


class Node:
    """A machine in a directory, and the agent that watches it."""

    def __init__(self, directory: Path, exporter: FakeExporter) -> None:
        self.directory, self.exporter = directory, exporter
        self.kmsg = directory / "kmsg"
        self.kmsg.touch()
        self.logs = directory / "logs"
        tree(directory / "proc", {"sys/kernel/random/boot_id": f"{BOOT}\n"})
        tree(directory / "sys", {
            "class/infiniband/mlx5_0/ports/1/counters/link_downed": "0\n",
            "class/dmi/id/product_serial": "ABC1234\n",
        })  # fmt: skip
        self.out = directory / "out"
        self.process: subprocess.Popen[bytes] | None = None
        self.settings(exporters=[exporter.url])

    def settings(self, *, interval_s: float = 0.5, **more: Any) -> None:
        collect = {
            "node": "n1", "kmsg": str(self.kmsg), "journalctl": "", "nvidia_smi": "",
            "ethtool": "", "sys_path": str(self.directory / "sys"),
            "proc_path": str(self.directory / "proc"),
            "state_dir": str(self.directory / "state"),
            "step_socket": str(self.directory / "s"),
            **more,
        }  # fmt: skip
        lines = [f"engine.ticks.interval_default_s = {interval_s}", "[collect]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in collect.items()]
        (self.directory / "nodewarden.toml").write_text("\n".join(lines), "utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(*words), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def start(self) -> None:
        with self.out.open("ab") as out, (self.directory / "err").open("ab") as err:
            self.process = subprocess.Popen(self._words("--stdout"), cwd=ROOT, stdout=out,
                                            stderr=err)  # fmt: skip

    def end(self, sent: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(sent)
        return self.process.wait(DEADLINE_S)

    def print_kernel(self, seq: int, text: str) -> None:
        us = int(time.monotonic() * 1e6)
        with self.kmsg.open("a") as file:
            file.write(f"3,{seq},{us},-;{text}\n")

    def said(self, kind: str = "") -> list[Said]:
        whole = self.out.read_bytes().rpartition(b"\n")[0] if self.out.exists() else b""
        objects = [json.loads(line) for line in whole.splitlines()]
        return [one for one in objects if kind in ("", one["kind"])]

    def await_said(self, kind: str, wanted: Callable[[Said], bool] = lambda _: True) -> Said:
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            for one in self.said(kind):
                if wanted(one):
                    return one
            time.sleep(0.02)
        raise AssertionError(
            f"no such {kind}: {self.said()[-5:]} {(self.directory / 'err').read_text()[-2000:]}"
        )

    def await_note(self, words: str) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while words not in (self.directory / "err").read_text():
            assert time.monotonic() < until_s, f"it does not say {words}"
            time.sleep(0.02)

    def _words(self, *words: str) -> list[str]:
        config = str(self.directory / "nodewarden.toml")
        return [sys.executable, "-m", "nodewarden", "collect", *words, "--config", config]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with fake_exporter() as exporter:
        made = Node(tmp_path, exporter)
        yield made
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def xid(code: int) -> str:
    return f"NVRM: Xid (PCI:0000:c3:00): {code}, pid=1814139, name=python, Ch 00000008"


def test_once_prints_a_look_at_every_source_and_keeps_nothing(node: Node) -> None:
    node.print_kernel(0, xid(79))
    done = node.run("--once", "--stdout")
    assert (0, "") == (done.returncode, done.stderr)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["frame", "frame", "hardware", "event"] == [one["kind"] for one in said]
    assert {"n1"} == {one["node"] for one in said}
    assert ["gpu", "nic", "host", "kernel"] == [one["source"] for one in said]
    assert [(0, 8), (79, 0)] == [
        (said[2].get("index", 0), len(said[2]["gpus"])), (said[3]["code"], said[3]["kmsg_seq"]),
    ]  # fmt: skip
    assert not (node.directory / "state").exists()
    assert not (node.directory / "s").exists()


def test_every_source_speaks_and_sigterm_ends_it_with_everything_said(node: Node) -> None:
    node.settings(exporters=[node.exporter.url],
                  training_logs=[f"{node.logs}/{{job}}/rank-{{rank}}.log"])  # fmt: skip
    node.start()
    node.await_said("frame", lambda one: one["source"] == "gpu")
    node.await_said("frame", lambda one: one["source"] == "nic")
    assert 8 == len(node.await_said("hardware")["gpus"])
    node.print_kernel(0, xid(79))
    event = node.await_said("event")
    assert (79, BOOT, 0) == (event["code"], event["boot_id"], event["kmsg_seq"])

    reporter = StepReporter(rank=3, job="j1", path=str(node.directory / "s"))
    assert reporter.report(7, step_time_s=1.9, compute_time_s=1.4)
    reporter.close()
    steps = node.await_said("steps")
    assert ("n1", [3], [7], [1.4]) == (
        steps["node"], steps["ranks"], steps["step"], steps["compute_time_s"],
    )  # fmt: skip
    tree(node.logs, {"j1/rank-0.log": "torch.OutOfMemoryError: CUDA out of memory. Tried to\n"})
    node.await_said("event", lambda one: one["source"] == "training")

    node.print_kernel(1, "NVRM: Xid (PCI:0000:c3:00): 48")  # waits for its next line
    node.await_said("event", lambda one: one.get("code") == 48)
    assert 0 == node.end()
    sequences: dict[str, list[int]] = {}
    for one in node.said():
        sequences.setdefault(one["source"], []).append(one["seq"])
    assert all(seqs == list(range(len(seqs))) for seqs in sequences.values())
    assert not (node.directory / "s").exists()


def test_rounds_keep_their_phase(node: Node) -> None:
    node.settings(exporters=[node.exporter.url], interval_s=0.4)
    node.start()
    node.await_said("frame", lambda one: one["source"] == "gpu" and one["seq"] == 6)
    node.end()
    frames = [one for one in node.said("frame") if one["source"] == "gpu"]
    phases = [one["at"] / 0.4 for one in frames]
    turns = [round(phase - phases[0]) for phase in phases]
    assert sorted(set(turns)) == turns  # one a turn; a busy machine may leave one out
    assert 1 == node.exporter.most_at_once


@pytest.mark.parametrize("answer", ["never", "huge", "junk"])
def test_a18_an_exporter_that_misbehaves_holds_up_nobody_else(node: Node, answer: Any) -> None:
    node.exporter.answer = answer
    node.start()
    node.await_said("frame", lambda one: one["source"] == "nic" and one["seq"] >= 4)
    node.print_kernel(0, xid(79))
    node.await_said("event")
    node.await_note(node.exporter.url)
    assert [] == [one for one in node.said("frame") if one["source"] == "gpu"]
    assert 1 == node.exporter.most_at_once
    assert 0 == node.end()


def test_b13_a_restarted_agent_goes_on_behind_what_it_has_told(node: Node) -> None:
    node.start()
    node.await_said("frame")
    node.print_kernel(0, xid(79))
    node.await_said("event", lambda one: one["kmsg_seq"] == 0)
    assert 0 == node.end()
    node.print_kernel(1, xid(48))  # while nobody reads
    node.start()
    node.await_said("event", lambda one: one["kmsg_seq"] == 1)
    assert 0 == node.end()
    assert [0, 1] == [one["kmsg_seq"] for one in node.said("event")]


def test_a_flood_on_the_step_socket_starves_nobody(node: Node) -> None:
    node.start()
    node.await_said("hardware")
    reporter = StepReporter(rank=0, job="j", path=str(node.directory / "s"))
    until_s = time.monotonic() + 3.0
    step = 0
    while time.monotonic() < until_s:
        reporter.report(step, step_time_s=0.001)
        step += 1
        if step == 1_000:
            node.print_kernel(0, xid(79))
    node.await_said("event")
    reporter.close()
    assert 0 == node.end()
    # once in five seconds, and when a step seems to take long
    assert len(node.said("steps")) <= 4
    assert step > 1_000


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"exporters": ["nonsense"]}, "collect.exporters: .nonsense.: expected http"),
     ({"exporters": [], "state_dir": "/proc/none"}, "collect.state_dir"),
     ({"exporters": [], "node": "a\nb"}, "does not print"),
     ({"exporters": [], "training_logs": ["relative"]}, "is no path"),
     ({"exporters": [], "step_socket": "/proc/none/s"}, "collect.step_socket"),
     ({"exporters": [], "interval": 10}, "interval")],
)  # fmt: skip
def test_a_wrong_setting_stops_the_start(node: Node, settings: dict[str, Any], why: str) -> None:
    node.settings(**settings)
    with pytest.raises(SettingsError, match=why):
        built(node.directory / "nodewarden.toml")


def built(config: Path) -> Agent:
    configuration = load(config, {}).configuration
    return build_agent(configuration, MemorySink(), Counts(), print, SystemClock())


def test_once_needs_stdout(node: Node) -> None:
    done = node.run("--once")
    assert (2, 1, True) == (
        done.returncode, len(done.stderr.splitlines()), "--stdout" in done.stderr,
    )  # fmt: skip


def test_a_state_directory_that_fills_up_stops_nobody(node: Node) -> None:
    (node.directory / "state/kmsg.json.new").mkdir(parents=True)  # it cannot be written
    node.start()
    node.print_kernel(0, xid(79))
    node.await_said("frame", lambda one: one["source"] == "nic" and one["seq"] >= 4)
    node.print_kernel(1, xid(48))
    node.await_said("event", lambda one: one["kmsg_seq"] == 1)
    node.await_note("not saved")
    assert 0 == node.end()


def test_a_log_that_never_pauses_is_not_read_again_from_far_behind(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.agent.agent.LOGS_SAVED_S", 0.5)
    node.settings(exporters=[], training_logs=[f"{node.logs}/{{job}}/rank-{{rank}}.log"])
    agent, state = built(node.directory / "nodewarden.toml"), node.directory / "state"
    running = threading.Thread(target=agent.run)
    running.start()
    try:
        until_s, step = time.monotonic() + DEADLINE_S, 0
        while offset_of(state / "training.json") < 1_000 and time.monotonic() < until_s:
            step += 1
            (node.logs / "j1").mkdir(parents=True, exist_ok=True)
            with (node.logs / "j1/rank-0.log").open("a") as file:
                file.write(f" iteration {step:8d}/  500000 | consumed samples: {step} | elapsed"
                           " time per iteration (ms): 100.0 | lm loss: 2.5E+00 |\n")  # fmt: skip
            time.sleep(0.05)
        assert offset_of(state / "training.json") >= 1_000
    finally:
        agent.stop()
        running.join(DEADLINE_S)
    size = (node.logs / "j1/rank-0.log").stat().st_size
    assert size == offset_of(state / "training.json")


def offset_of(path: Path) -> int:
    if not path.exists():
        return 0
    files = json.loads(path.read_bytes())["files"]
    return max((int(one["offset"]) for one in files.values()), default=0)
