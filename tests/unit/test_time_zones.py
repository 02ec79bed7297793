"""Times that name no zone or no year: where both are taken from."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.capture import open_capture
from nodewarden.cli import run
from telemetry.errors import InputError
from telemetry.records import Event
from telemetry.settings import EngineSettings

LOCAL_S = datetime(2026, 2, 25, 12, 59, 45, tzinfo=UTC).timestamp()  # 13:59:45 in Berlin
LINES = {
    "kernel": "2026-02-25T13:59:45 n1 kernel: NVRM: Xid (PCI:0000:c3:00): 79, pid=1, GPU has"
    " fallen off the bus.",
    "nic": "2026 Feb 25 13:59:45 sw %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/4 is down"
    " (Link failure)",
    "training": " [2026-02-25 13:59:45] iteration 43/ 100 | elapsed time per iteration (ms): 5444.9"
    " | lm loss: 1.8E+00 |",
}  # fmt: skip
WATCHDOG = (
    "[E225 13:59:45.000000000 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
    " Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)


@pytest.mark.parametrize("kind", LINES)
def test_parse_takes_a_zone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (tmp_path / "a.log").write_text(LINES[kind] + "\n")
    assert run(["parse", kind, "--tz", "Europe/Berlin", str(tmp_path / "a.log")], {}) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[0])

    assert LOCAL_S == found["at"]


@pytest.mark.parametrize(("kind", "zone"), [("kernel", "Mars/Base"), ("stacks", "UTC")])
def test_a_zone_that_means_nothing_stops_the_start_with_one_line(
    kind: str, zone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parse", kind, "--tz", zone, __file__], {}) == 2
    said = capsys.readouterr()
    assert ("", 1) == (said.out, len(said.err.strip().splitlines()))
    assert "--tz" in said.err


def failures(path: Path, about: dict[str, object]) -> list[float]:
    (path / "training" / "1").mkdir(parents=True)
    (path / "training" / "1" / "a.log").write_text(WATCHDOG)
    (path / "capture.json").write_text(json.dumps(about))
    with open_capture(path, EngineSettings()) as capture:
        return [record.at for record in capture.records() if isinstance(record, Event)]


@pytest.mark.parametrize("year", [2019, 2026])
def test_the_year_of_capture_json_is_that_of_training_logs_too(year: int, tmp_path: Path) -> None:
    wanted_s = datetime(year, 2, 25, 13, 59, 45, tzinfo=UTC).timestamp()

    assert [wanted_s] == failures(tmp_path / "c", {"cluster": "c", "year": year})


def test_a_year_that_is_none_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="year 99999"):
        failures(tmp_path / "c", {"year": 99_999})
