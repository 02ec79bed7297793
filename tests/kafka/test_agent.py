"""The node agent on a real broker: kernel events exactly once by their id, whatever ends it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.step_reporter import StepReporter
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode
from telemetry.records import Arrived, Event, Frame, Record, Rejected, Settings
from telemetry.settings import EngineSettings
from telemetry.topics import TELEMETRY
from tests.agent_fakes import FakeExporter, fake_exporter, tree
from tests.bench.test_agent_budget import RSS_MAX_MB, peak_mb
from tests.folding import fresh
from tests.kafka.broker import Broker, free_port
from tests.kafka.reading import read_all
from tests.kafka.service import Service

pytestmark = pytest.mark.kafka

BOOT = "5c1b0a9e-1111-4222-8333-444455556666"
EVENTS = 200
DEADLINE_S = 60.0


@pytest.fixture
def exporter() -> Iterator[FakeExporter]:
    with fake_exporter() as one:
        yield one


class Node:
    """A machine in a directory and its agent, which sends to a broker."""

    def __init__(self, directory: Path, broker: Broker, exporter: FakeExporter) -> None:
        self.broker, self.directory = broker, directory
        self.kmsg = directory / "kmsg"
        self.kmsg.touch()
        self.state = directory / "state"
        tree(directory / "proc", {"sys/kernel/random/boot_id": f"{BOOT}\n"})
        self.port = free_port()
        tables = {
            "kafka": {"brokers": [broker.address]},
            "engine": {"ticks": {"interval_default_s": 1.0}},
            "collect": {
                "node": "n1", "exporters": [exporter.url], "kmsg": str(self.kmsg),
                "journalctl": "", "nvidia_smi": "", "ethtool": "",
                "sys_path": str(directory / "sys"), "proc_path": str(directory / "proc"),
                "state_dir": str(self.state), "step_socket": str(directory / "s"),
                "metrics_address": f"127.0.0.1:{self.port}",
            },
        }  # fmt: skip
        self.service = Service(
            directory, "agent", ("-m", "nodewarden", "collect"), tables, self.port,
            prefix="nodewarden_", label="kind",
        )  # fmt: skip

    def print_kernel(self, first: int, count: int) -> None:
        us = int(time.monotonic() * 1e6)
        with self.kmsg.open("a") as file:
            file.writelines(
                f"3,{seq},{us},-;NVRM: Xid (PCI:0000:{seq % 64:02x}:00): 79, pid=1, name=python\n"
                for seq in range(first, first + count)
            )

    def log(self) -> list[ArchiveLine]:
        return read_all(self.broker, TELEMETRY)

    def records(self) -> list[Record]:
        return [record_of(line) for line in self.log()]

    def acknowledged(self, events: int) -> None:
        self.service.wait_until(
            lambda m: m.get(("outbox_acknowledged_total", "event"), 0.0) >= events,
            f"{events} events acknowledged", DEADLINE_S,
        )  # fmt: skip


def record_of(line: ArchiveLine) -> Record:
    record = decode(line.value or b"", "test")
    assert not isinstance(record, Rejected), record
    return record


def folded(log: list[ArchiveLine]) -> tuple[Counter[int | None], int, int]:
    """Event numbers as they stand in the log, and what a fold counts: used and duplicate events."""
    fold = fresh()
    start = log[0].timestamp_ms / 1e3
    fold.step(Arrived(0, start, Settings(
        at=start, node="", source="", started_at=0.0, seq=0, digest="", engine_version="",
        settings=EngineSettings(),
    )))  # fmt: skip
    seen: Counter[int | None] = Counter()
    used = duplicate = 0
    for line in log:
        record = record_of(line)
        before = fold.counters.used, fold.counters.duplicate
        fold.step(Arrived(line.offset + 1, line.timestamp_ms / 1e3, record))
        if isinstance(record, Event):
            seen[record.kmsg_seq] += 1
            used += fold.counters.used - before[0]
            duplicate += fold.counters.duplicate - before[1]
    assert 0 == fold.counters.rejected
    return seen, used, duplicate


def test_b13_killed_between_send_and_saved_position_every_event_is_there_once_by_its_id(
    tmp_path: Path, clean_topics: Broker, exporter: FakeExporter
) -> None:
    node = Node(tmp_path, clean_topics, exporter)
    blocked = node.state / "kmsg.json.new"
    node.service.start()
    node.service.wait_until(lambda _: (node.state / "kmsg.json").exists(), "ready")
    blocked.mkdir()  # from here on no position can be saved
    node.print_kernel(0, EVENTS)
    node.acknowledged(EVENTS)
    node.service.kill()

    blocked.rmdir()
    node.print_kernel(EVENTS, 5)
    with node.service:
        node.acknowledged(EVENTS + 5)

    seen, used, duplicate = folded(node.log())
    assert set(range(EVENTS + 5)) == set(seen)
    assert all(seen[seq] >= 2 for seq in range(EVENTS))  # from the ring, and perhaps from the disk
    assert (EVENTS + 5, seen.total()) == (used, used + duplicate)


def test_killed_before_anything_is_acknowledged_nothing_is_lost(
    tmp_path: Path, own_kafka: Broker, exporter: FakeExporter
) -> None:
    """The broker is away when the lines are printed; the agent is killed, then both come back."""
    node = Node(tmp_path, own_kafka, exporter)
    node.service.start()
    node.service.wait_until(
        lambda m: m.get(("outbox_acknowledged_total", "frame"), 0.0) >= 1.0, "sending"
    )
    own_kafka.kill()
    node.print_kernel(0, EVENTS)
    node.service.wait_until(
        lambda m: m.get(("agent_records_total", "event"), 0.0) >= EVENTS, "events read"
    )
    node.service.kill()
    own_kafka.start()
    with node.service:
        deadline_s = time.monotonic() + DEADLINE_S
        while len({r.kmsg_seq for r in node.records() if isinstance(r, Event)}) < EVENTS:
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
    seen, used, _ = folded(node.log())
    assert set(range(EVENTS)) == set(seen)
    assert EVENTS == used


def test_the_agent_sends_what_it_reads_in_its_memory_budget(
    tmp_path: Path, clean_topics: Broker, exporter: FakeExporter
) -> None:
    node = Node(tmp_path, clean_topics, exporter)
    with node.service:
        reporter = StepReporter(rank=0, job="j", path=str(tmp_path / "s"))
        node.service.wait_until(lambda _: (tmp_path / "s").exists(), "listening")
        assert reporter.report(1, step_time_s=2.0)
        node.service.wait_until(
            lambda m: m.get(("outbox_acknowledged_total", "frame"), 0.0) >= 20.0, "20 frames"
        )
        peak = peak_mb(node.service.pid)
        print(f"\nagent, Kafka  {peak:.1f} MB RSS (at most {RSS_MAX_MB:g})")
        assert peak <= RSS_MAX_MB
        reporter.close()
    frames = [r for r in node.records() if isinstance(r, Frame) and r.source == "gpu"]
    assert {8} == {len(frame.entities["gpu"]) for frame in frames}
    assert list(range(len(frames))) == [frame.seq for frame in frames]
    assert all(frame.sent_at is not None and not frame.spooled for frame in frames[5:])
    assert {"steps", "hardware", "frame"} <= {
        record.__struct_config__.tag for record in node.records()
    }
