"""Polls of a real Prometheus that scrapes on: no gap, no repeat, whatever ends in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.records import Event, Frame, Hardware, Record, Steps
from tests.prometheus.collector import arguments, records_of
from tests.prometheus.fleet import Counting, serving
from tests.prometheus.server import Prometheus

pytestmark = pytest.mark.prometheus

NODES = ("n1", "n2", "n3")
FAST = {"poll_s": 0.5, "delay_s": 1.0, "page_s": 5.0, "first_s": 60.0, "names_s": 1.0}
DEADLINE_S = 60.0


class Run:
    """One collector that prints to a file."""

    def __init__(self, directory: Path, url: str, number: int) -> None:
        self.out, self.err = directory / f"out{number}", directory / f"err{number}"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                arguments(directory, url, **FAST), stdout=out, stderr=err
            )

    def records(self) -> list[Record]:
        whole, _, _ = self.out.read_bytes().rpartition(b"\n")
        return records_of(whole)

    def frames(self, node: str) -> list[Frame]:
        return [r for r in self.records() if isinstance(r, Frame) and r.node == node]

    def end(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)
        self.process.wait(10.0)


@pytest.fixture
def runs(tmp_path: Path, prometheus: Prometheus) -> Iterator[Callable[[], Run]]:
    begun: list[Run] = []

    def begin() -> Run:
        begun.append(Run(tmp_path, prometheus.url, len(begun)))
        return begun[-1]

    yield begin
    for run in begun:
        if run.process.poll() is None:
            run.end(signal.SIGKILL)


@pytest.fixture
def fleet(prometheus: Prometheus) -> Iterator[dict[str, Counting]]:
    exporters = {node: Counting(node) for node in NODES}
    with serving(exporters) as targets:
        prometheus.scrape(list(targets.values()), "1s")
        yield exporters


def wait(is_so: Callable[[], Any], what: str, run: Run | None = None) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not is_so():
        said = run.err.read_text() if run is not None else ""
        assert time.monotonic() < until_s, f"{what}: {said}"
        time.sleep(0.2)


def temperatures(frames: list[Frame]) -> list[int]:
    return [int(frame.metrics["gpu_temperature_celsius"][0] or 0) for frame in frames]


def assert_whole(records: list[Record]) -> None:
    """Every scrape of every node once, and streams without holes."""
    for node in NODES:
        frames = [r for r in records if isinstance(r, Frame) and r.node == node]
        numbers = temperatures(frames)
        assert list(range(numbers[0], numbers[0] + len(numbers))) == numbers
        assert list(range(len(frames))) == [frame.seq for frame in frames]
    steps = [step for r in records if isinstance(r, Steps) for step in r.step]
    assert len(set(steps)) == len(steps)


def test_every_scrape_once_over_polls_and_a_restart_and_an_xid_between_them(
    runs: Callable[[], Run], fleet: dict[str, Counting]
) -> None:
    first = runs()
    wait(lambda: len(first.frames("n3")) >= 6, "frames", first)
    first.end()
    before = fleet["n2"].scrapes
    fleet["n2"].xid = 79  # while nobody reads
    wait(lambda: fleet["n2"].scrapes >= before + 4, "scrapes")
    second = runs()
    wait(lambda: len(second.frames("n3")) >= 6, "frames", second)
    second.end()

    records = [*first.records(), *second.records()]
    assert_whole(records)
    events = [r for r in records if isinstance(r, Event)]
    assert [("n2", 79)] == [(event.node, event.code) for event in events]
    hardware = Counter(r.node for r in first.records() if isinstance(r, Hardware))
    assert set(NODES) == set(hardware)
    assert 1 == len({r.started_at for r in records if isinstance(r, (Frame, Event))})


def test_killed_what_was_not_saved_comes_again_under_its_own_number(
    runs: Callable[[], Run], fleet: dict[str, Counting], tmp_path: Path
) -> None:
    first = runs()
    wait(lambda: len(first.frames("n3")) >= 4, "frames", first)
    blocked = tmp_path / "state" / "prometheus.json.new"
    blocked.mkdir()  # from here on no position is saved
    have = len(first.frames("n3"))
    wait(lambda: len(first.frames("n3")) >= have + 4, "more frames", first)
    first.end(signal.SIGKILL)
    blocked.rmdir()
    second = runs()
    wait(lambda: len(second.frames("n3")) >= 8, "frames", second)
    second.end()

    told: dict[tuple[str, float, int], Any] = {}
    repeats = 0
    for record in (*first.records(), *second.records()):
        if isinstance(record, Frame):
            key = (record.node, record.started_at, record.seq)
            said = (record.at, record.metrics)
            assert told.setdefault(key, said) == said  # a repeat says the same
            repeats += key in told
    assert repeats > 0
    for node in NODES:
        seqs = sorted(seq for one, _, seq in told if one == node)
        numbers = [
            told[key][1]["gpu_temperature_celsius"][0] for key in sorted(told) if key[0] == node
        ]
        assert list(range(len(seqs))) == seqs
        assert list(range(int(numbers[0]), int(numbers[0]) + len(numbers))) == numbers


def test_a_prometheus_that_goes_away_is_said_and_caught_up(
    runs: Callable[[], Run], fleet: dict[str, Counting], prometheus: Prometheus
) -> None:
    run = runs()
    wait(lambda: len(run.frames("n3")) >= 3, "frames", run)
    prometheus.stop()
    wait(lambda: "tried again" in run.err.read_text(), "the outage is said", run)
    before = len(run.frames("n3"))
    prometheus.start()
    wait(lambda: len(run.frames("n3")) >= before + 5, "frames after the outage", run)
    run.end()
    assert "Traceback" not in run.err.read_text()
    for node in NODES:
        frames = run.frames(node)
        assert list(range(len(frames))) == [frame.seq for frame in frames]
        assert len({frame.at for frame in frames}) == len(frames)
    interval = json.loads((run.out.parent / "state" / "prometheus.json").read_text())["intervals"]
    assert 1.0 == interval["gpu"]
    assert "gpu is scraped every 1 s, and engine.ticks.interval_s.gpu is 10" in run.err.read_text()
