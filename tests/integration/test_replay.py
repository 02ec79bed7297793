"""The command line as users run it: simulate, replay, import, score; the same bytes everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nodewarden.cli import run
from nodewarden.logs import open_logs
from streams.snapshot import Snapshots
from telemetry.archive import ArchiveWriter
from telemetry.settings import Configuration
from telemetry.topics import STATE
from tests.folding import fresh

ROOT = Path(__file__).parents[2]


def simulate(place: Path, *faults: str, nodes: int = 32, minutes: int = 35) -> None:
    """The same telemetry as an archive `a` and a capture `c`."""
    arguments = [x for fault in faults for x in ("--fault", fault)]
    status = run(
        ["simulate", "--nodes", str(nodes), "--minutes", str(minutes), "--seed", "7", *arguments,
         "--out", str(place / "a"), "--capture", str(place / "c")],
        {},
    )  # fmt: skip
    assert status == 0


def replay(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    truth = path / "truth.json"
    assert run(["replay", str(path), "--json", "--score", str(truth), *more], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def gist(incident: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on the form of the input."""
    return {
        "kind": incident["kind"],
        "cause": incident["cause"],
        "job": incident["job"],
        "suspects": [(s["node"], s["entity"].partition(":")[0]) for s in incident["suspects"]],
        "action": incident["verdict"]["action"],
        "targets": incident["verdict"]["targets"],
        "when": incident["verdict"]["when"],
        "evidence": sorted({(e["detector"], e["metric"]) for e in incident["evidence"]}),
    }


def test_the_published_ecn_case_is_told_alike_by_archive_and_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(tmp_path, "ecn@n003+600")

    archive, capture = replay(capsys, tmp_path / "a"), replay(capsys, tmp_path / "c")

    for found in (archive, capture):
        (incident,) = found["incidents"]
        assert incident["cause"] == "network"
        assert incident["verdict"]["action"] == "isolate_and_restart"
        assert incident["verdict"]["targets"] == ["n003"]
        slow = [e for e in incident["evidence"] if e["metric"] == "step_time_s"]
        assert slow[0]["observed"] / slow[0]["expected"] == pytest.approx(1.26, abs=0.02)
        assert found["score"]["wrong"] == found["score"]["missed"] == 0
    assert gist(archive["incidents"][0]) == gist(capture["incidents"][0])


def test_the_same_surge_without_a_slow_job_is_a_finding_and_no_isolation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(tmp_path, "ecn-only@n003+600")

    for form in ("a", "c"):
        found = replay(capsys, tmp_path / form)
        assert found["summary"]["findings"]["zscore"] >= 1
        assert all(not i["verdict"]["targets"] for i in found["incidents"])
        assert found["score"]["wrong"] == 0


@pytest.mark.parametrize(
    "nodes",
    [32, pytest.param(64, marks=pytest.mark.slow), pytest.param(128, marks=pytest.mark.slow)],
)
def test_a_congested_leaf_is_one_incident_and_nobody_is_isolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int
) -> None:
    """A leaf is a quarter, an eighth and a sixteenth of the cluster."""
    simulate(tmp_path, "leaf@leaf-01+600", nodes=nodes, minutes=30)

    for form in ("a", "c"):
        found = replay(capsys, tmp_path / form)
        (incident,) = found["incidents"]
        assert incident["cause"] == "network"
        assert incident["verdict"]["action"] == "page"
        assert all(not verdict["targets"] for verdict in incident["verdicts"])


def test_a_capture_and_its_import_are_told_with_the_same_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(tmp_path, "ecn@n003+600", "xid13@n020+300")
    assert run(["import", str(tmp_path / "c"), "--out", str(tmp_path / "i")], {}) == 0
    (tmp_path / "i" / "truth.json").write_bytes((tmp_path / "c" / "truth.json").read_bytes())

    assert replay(capsys, tmp_path / "i") == replay(capsys, tmp_path / "c")


def process(path: Path, environ: dict[str, str], code: str = "") -> bytes:
    """`replay --json` in a process of its own."""
    script = f"{code}\nfrom nodewarden.__main__ import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", script, "replay", str(path), "--json", "--report",
         str(path.parent / "report.html")],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def cpu_features() -> str:
    """What this machine's NumPy chose at run time, so that it can be taken away."""
    umath = np._core._multiarray_umath  # type: ignore[attr-defined]
    has = umath.__cpu_features__
    return " ".join(name for name in umath.__cpu_dispatch__ if has.get(name))


def test_a_replay_prints_the_same_bytes_everywhere(tmp_path: Path) -> None:
    simulate(tmp_path, "ecn@n003+600", "thermal@n009+900", nodes=16, minutes=30)
    for form in ("a", "c"):
        first = process(tmp_path / form, {"PYTHONHASHSEED": "1"})
        report = (tmp_path / "report.html").read_bytes()
        assert process(tmp_path / form, {"PYTHONHASHSEED": "1"}) == first
        assert process(tmp_path / form, {"PYTHONHASHSEED": "4242"}) == first
        bare = {"PYTHONHASHSEED": "0", "NPY_DISABLE_CPU_FEATURES": cpu_features()}
        assert process(tmp_path / form, bare) == first
        assert (tmp_path / "report.html").read_bytes() == report


def test_a_replay_opens_no_socket(tmp_path: Path) -> None:
    """An audit hook sees every socket that any code of the process makes."""
    simulate(tmp_path, "xid79@n003+300", nodes=8, minutes=8)
    hook = (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event.startswith('socket.'):\n"
        "        raise SystemExit(f'opened a socket: {event} {arguments}')\n"
        "sys.addaudithook(refuse)"
    )
    for form in ("a", "c"):
        assert b"isolate_and_restart" in process(tmp_path / form, {}, hook)
    with pytest.raises(AssertionError, match="opened a socket"):
        process(tmp_path / "a", {}, f"{hook}\nimport socket\nsocket.socket()")


def test_from_starts_at_the_newest_archived_snapshot_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a live worker published on the way lets a replay begin in the middle, whole."""
    simulate(tmp_path, "ecn@n003+600", nodes=8, minutes=25)
    (log,) = open_logs(tmp_path / "a", Configuration(), None)
    fold, snapshots, offset = fresh(), Snapshots("main"), 0
    with ArchiveWriter(tmp_path / "a", STATE, 0) as writer:
        for arrived in log.records:
            fold.step(arrived)
            if arrived.offset % 500 == 499:
                for key, value in snapshots.take(fold):
                    at_ms = round(arrived.arrival * 1000.0)
                    writer.append(offset, at_ms, value, key.encode())
                    offset += 1
    begin = log_start(tmp_path / "a")

    whole = replay(capsys, tmp_path / "a")
    later = replay(capsys, tmp_path / "a", "--from", str(begin + 900.0))

    assert whole["incidents"][0]["verdict"]["targets"] == ["n003"]
    assert later == whole


def log_start(path: Path) -> float:
    """Arrival of an archive's first record."""
    (log,) = open_logs(path, Configuration(), None)
    return next(iter(log.records)).arrival


def test_from_without_a_snapshot_is_a_cold_start_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(tmp_path, "ecn@n003+900", nodes=16, minutes=35)
    begin = log_start(tmp_path / "a")

    found = replay(capsys, tmp_path / "a", "--from", str(begin + 300.0))

    assert found["summary"]["cold_start"] is True
    assert [i["verdict"]["targets"] for i in found["incidents"]] == [["n003"]]


def test_a_time_without_records_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(tmp_path, nodes=2, minutes=2)
    capsys.readouterr()
    assert run(["replay", str(tmp_path / "a"), "--from", "2040-01-01"], {}) == 2
    assert "no record between" in capsys.readouterr().err
