"""Rounds at their moments, journald's lines, and what the agent says of itself."""

from __future__ import annotations

import json
import stat
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from collectors.agent.cells import Cells
from collectors.agent.counts import Counts
from collectors.agent.journal import Journal, JournalPosition
from collectors.agent.kernel_source import KernelPaths, KernelSource
from collectors.agent.metrics import AgentMetrics
from collectors.agent.notes import AGAIN_S, Notes
from collectors.agent.positions import PositionFile
from collectors.agent.rounds import Phase, Reading, Results, Worker
from nodewarden.clock import SystemClock
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.metrics import BY_NAME
from telemetry.records import Event
from telemetry.testing import ManualClock

DEADLINE_S = 20.0


def awaited(true: object) -> None:
    assert callable(true)
    until_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.005)


# -- phases


@given(st.floats(1e9, 2e9), st.sampled_from([0.5, 10.0, 15.0, 60.0]), st.text(max_size=20))
def test_a_node_speaks_at_its_own_moment_of_every_interval(
    now_s: float, interval_s: float, node: str
) -> None:
    phase = Phase(node, "gpu", interval_s)
    first_s = now_s + phase.wait_s(now_s, first=True)
    assert now_s <= first_s < now_s + interval_s
    for early_s in (-0.01, 0.0, 0.2 * interval_s):
        again_s = first_s + early_s + phase.wait_s(first_s + early_s)
        assert again_s == pytest.approx(first_s + interval_s, abs=1e-3)


def test_nodes_and_sources_are_spread_over_the_interval() -> None:
    moments = {
        round(Phase(f"n{at:03d}", source, 10.0).wait_s(0.0, first=True), 1)
        for at in range(100) for source in ("gpu", "nic")
    }  # fmt: skip
    assert len(moments) > 60


def test_a_clock_that_is_set_back_costs_at_most_an_interval_and_a_half() -> None:
    phase = Phase("n1", "gpu", 10.0)
    for now_s in (2e9, 1.9e9, 2.1e9 + 3.3):
        assert 5.0 <= phase.wait_s(now_s) <= 15.0


# -- workers


def test_a18_a_round_is_never_begun_while_the_one_before_it_runs() -> None:
    go, began = threading.Event(), []

    def work() -> Reading:
        began.append(1)
        go.wait(DEADLINE_S)
        return Reading(notes=["done"])

    results = Results(lambda: None)
    worker = Worker("gpu", work, results.put)
    assert worker.trigger()
    assert not worker.trigger()
    awaited(lambda: began)
    go.set()
    awaited(worker.trigger)
    awaited(lambda: len(began) == 2)
    awaited(lambda: len(results.take()) > 0)
    worker.end()


def test_an_error_of_ours_ends_the_worker_and_is_handed_to_the_loop() -> None:
    def work() -> Reading:
        raise ZeroDivisionError

    worker = Worker("gpu", work, lambda _: None)
    worker.trigger()
    awaited(lambda: worker.error is not None)
    assert isinstance(worker.error, ZeroDivisionError)
    assert not worker.trigger()


def test_results_that_nobody_takes_are_bounded() -> None:
    woken: list[int] = []
    results = Results(lambda: woken.append(1))
    for at in range(1_000):
        results.put(Reading(notes=[str(at)]))
    assert "999" == results.take()[-1].notes[0]
    assert [] == results.take()


def test_what_exporters_tell_of_nics_joins_the_node_s_own_and_does_not_replace_it() -> None:
    own, scraped = Cells(), Cells()
    row = BY_NAME["nic_link_downed_total"]
    own.add(row, "mlx5_0/1", 1.0)
    scraped.add(row, "mlx5_0/1", 9.0)
    scraped.add(row, "mlx5_1/1", 2.0)
    scraped.add(BY_NAME["gpu_power_watts"], "GPU-1", 3.0)
    own.join(scraped, "nic")
    frame = own.frame("nic", "n1", "", 1.7e9)
    assert frame is not None
    assert {"nic_link_downed_total": [1.0, 2.0]} == frame.metrics


# -- journald


def journalctl(directory: Path, lines: list[str], asked: Path) -> str:
    """A program that prints the lines behind the cursor it is given, then follows."""
    (directory / "lines").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    path = directory / "journalctl"
    path.write_text(
        f"""#!/bin/sh
echo "$@" >> {asked}
case "$*" in
*--after-cursor=s=*) sed "0,/${{5#--after-cursor=}}\\"/d" {directory}/lines ;;
*--lines=1*) tail -n 1 {directory}/lines ;;
*) cat {directory}/lines ;;
esac
exec sleep 30
""",
        "ascii",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def journal_line(number: int, message: str) -> str:
    return json.dumps({
        "__CURSOR": f"s=ab;i={number}", "MESSAGE": message, "_TRANSPORT": "kernel",
        "__REALTIME_TIMESTAMP": str(1_772_027_985_000_000 + number),
    })  # fmt: skip


XIDS = [journal_line(at, f"NVRM: Xid (PCI:0000:c3:00): {code}, pid=1, name=x")
        for at, code in enumerate((79, 48, 95))]  # fmt: skip


def codes_of(journal: Journal, count: int) -> list[int | None]:
    events: list[Event] = []
    until_s = time.monotonic() + DEADLINE_S
    while len(events) < count and time.monotonic() < until_s:
        events += [one for one in journal.poll() if isinstance(one, Event)]
        time.sleep(0.01)
    time.sleep(0.1)
    events += [one for one in (*journal.poll(), *journal.finish()) if isinstance(one, Event)]
    return [event.code for event in events]


@pytest.mark.parametrize(
    ("saved", "codes", "cursor"),
    [(JournalPosition("other boot", "s=ab;i=9"), [79, 48, 95], "s=ab;i=2"),
     (JournalPosition("boot", "s=ab;i=0"), [48, 95], "s=ab;i=2"),
     (None, [], "s=ab;i=2")],
)  # fmt: skip
def test_b11_journald_is_read_as_the_ring_is_where_the_ring_may_not_be(
    tmp_path: Path, saved: JournalPosition | None, codes: list[int], cursor: str
) -> None:
    program = journalctl(tmp_path, XIDS, tmp_path / "asked")
    journal = Journal(program, "n1", "boot", saved, SystemClock())
    # The first start learns from one line where it stands, and tells nothing.
    said = codes_of(journal, len(codes)) if codes else []
    if not codes:
        awaited(lambda: (journal.poll(), journal.finish(), journal.position().cursor)[2] != "")
    assert codes == said
    assert JournalPosition("boot", cursor) == journal.position()
    journal.close()


def test_a_journalctl_that_ends_is_started_again_after_a_while(tmp_path: Path) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\n", "ascii")
    program.chmod(0o755)
    journal = Journal(str(program), "n1", "boot", None, SystemClock())
    awaited(lambda: (journal.poll(), journal.failures)[1] == 1)
    for _ in range(20):
        journal.poll()
    assert "x\n" == (tmp_path / "asked").read_text()
    journal.close()


def test_where_kmsg_cannot_be_read_journald_is(tmp_path: Path) -> None:
    program = journalctl(tmp_path, XIDS, tmp_path / "asked")
    paths = KernelPaths(str(tmp_path / "none"), program, None)
    counts = Counts()
    source = KernelSource(paths, "n1", "boot", counts, SystemClock())
    events: list[object] = []
    until_s = time.monotonic() + DEADLINE_S
    while len(events) < 3 and time.monotonic() < until_s:
        events += source.poll()
        time.sleep(0.01)
    assert 3 == len(events)
    assert any("none: No such file" in note for note in source.notes)
    assert any(program in note for note in source.notes)
    source.close()


# -- what it says of itself


def test_totals_and_successes_are_metrics() -> None:
    counts, registry = Counts(), CollectorRegistry()
    registry.register(AgentMetrics(counts))
    counts.add("errors", 2, "exporter")
    counts.set("kmsg_lost", 4188)
    counts.succeeded("gpu", 1.7e9)
    text = generate_latest(registry).decode()
    for line in (
        'nodewarden_agent_errors_total{source="exporter"} 2.0',
        "nodewarden_agent_kmsg_lost_total 4188.0",
        "nodewarden_agent_scrapes_total 0.0",
        'nodewarden_agent_last_success_timestamp_seconds{source="gpu"} 1.7e+09',
    ):
        assert line in text.splitlines()


def test_the_same_sentence_is_said_once_in_a_while() -> None:
    said: list[str] = []
    clock = ManualClock()
    notes = Notes(said.append, clock)
    for _ in range(3):
        notes.say_all(["a", "b"])
    clock.advance(AGAIN_S)
    notes.say_all(["a"])
    assert ["a", "b", "a"] == said


# -- positions


@pytest.mark.parametrize("content", [b"", b"junk", b"[]", b'{"boot_id":1,"cursor":2}', b"\xff"])
def test_a_position_that_cannot_be_read_any_more_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    assert PositionFile(path, JournalPosition).load() is None


def test_a_position_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.mkdir()
    with pytest.raises(SettingsError, match="Is a directory"):
        PositionFile(path, JournalPosition).load()
    with pytest.raises(SourceUnavailable, match="not saved"):
        PositionFile(path, JournalPosition).save(JournalPosition("b", "c"))
