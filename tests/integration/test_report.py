"""`nodewarden report` as a command: what it reads, what it writes, how it refuses."""

from __future__ import annotations

import gzip
import json
import resource
from pathlib import Path

import pytest

from actions.accounting.account import Accountant
from nodewarden.accounting import account_of_log, account_of_path
from nodewarden.cli import run
from nodewarden.commands.report import month_of
from telemetry.archive import ArchiveWriter
from telemetry.codec import encode
from telemetry.errors import SettingsError
from telemetry.settings import Configuration
from telemetry.testing import MemoryLog
from telemetry.topics import ACTIONS, INCIDENTS, TELEMETRY
from tests.accounting_log import T0, steps, values, write

DAY_S = 86_400.0
MONTH = "2027-01"  # of T0, 2027-01-15


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("archive"))


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["report", *arguments, "--json"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_an_archive_is_reported_whole(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(archive)], {}) == 0
    said = capsys.readouterr().out
    assert "ETTR 93.1 % of 2 h of 2 jobs; 1 interruption" in said
    assert "eviction and restart" in said


def test_html_and_csv_are_written_whole(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, directory = tmp_path / "r.html", tmp_path / "csv"
    arguments = ["report", str(archive), "--html", str(page), "--csv", str(directory)]
    assert run(arguments, {}) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert len(list(directory.glob("*.csv"))) == 13
    assert str(page) in capsys.readouterr().out


def test_a_month_is_one_of_utc(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = reported(capsys, str(archive))
    assert reported(capsys, str(archive), "--month", MONTH) == whole
    other = reported(capsys, str(archive), "--month", "2027-02")
    assert other["jobs"] == []
    assert other["incidents"] == []
    assert other["decided"] == []


def test_the_last_month_of_a_year_ends_with_it() -> None:
    assert month_of("2027-12")[1] == month_of("2028-01")[0]


@pytest.mark.parametrize("month", ["2027-13", "2027-1", "january", "2027-01-01", "1999-01", ""])
def test_what_is_no_month_is_refused_in_one_line(
    month: str, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(archive), "--month", month], {}) == 2
    said = capsys.readouterr().err
    assert "--month" in said
    assert said.count("\n") == 1


def test_a_path_that_is_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(tmp_path / "nowhere")], {}) == 2
    assert "no such directory" in capsys.readouterr().err


def test_one_job_is_asked_for(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = reported(capsys, str(archive), "--job", "j2")
    assert [one["id"] for one in found["jobs"]] == ["j2"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("topic", [INCIDENTS, ACTIONS, TELEMETRY])
def test_damage_is_said_and_the_rest_is_counted(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = write(tmp_path / "archive")
    with ArchiveWriter(tmp_path / "more", topic, 0) as writer:
        for offset, value in enumerate((b"{}", b"not json", b'{"kind":"steps"}', b"[" * 500, None)):
            writer.append(10_000 + offset, round(T0 * 1_000), value)
    (more,) = (tmp_path / "more" / topic / "0").iterdir()
    more.rename(archive / topic / "0" / more.name)
    (archive / topic / "0" / "20000.jsonl.zst").write_bytes(b"torn")
    found = reported(capsys, str(archive))
    notes = " ".join(found["notes"])  # type: ignore[arg-type]
    assert f"records of {topic} could not be read" in notes
    assert "read to its last whole part" in notes
    assert found["fleet"]["ettr"] == pytest.approx(20_120 / 21_600)  # type: ignore[index]


def test_a_simulated_archive_has_incidents_from_its_telemetry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    arguments = ["simulate", "--nodes", "4", "--gpus", "2", "--minutes", "40", "--fault",
                 "xid94@2+10m", "--fault", "xid79@1+25m", "--out", str(archive)]  # fmt: skip
    assert run(arguments, {}) == 0
    capsys.readouterr()
    found = reported(capsys, str(archive))
    assert found["fleet"]["restarts"] == 1  # type: ignore[index]
    assert found["fleet"]["interruptions"] == 2  # type: ignore[index]
    assert [one["kind"] for one in found["incidents"]] == ["gpu_lost"]  # type: ignore[attr-defined]
    assert "replaying the telemetry" in found["notes"][0]  # type: ignore[index]
    assert found["mechanisms"] == []


def test_a_capture_is_reported_too(capsys: pytest.CaptureFixture[str]) -> None:
    capture = Path(__file__).parents[1] / "data" / "capture-ecn"
    found = reported(capsys, str(capture))
    assert found["fleet"]["ettr"] is not None  # type: ignore[index]


def test_the_live_log_gives_what_its_archive_gives(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog({TELEMETRY: 2, INCIDENTS: 2, ACTIONS: 1})
    for topic, at, value, kind in values():
        log.now_ms = round(at * 1_000)
        log.append(topic, value, headers=[("kind", kind.encode())] if kind else ())
    log.append(TELEMETRY, b"of a history shard, not read", partition=1)
    account = account_of_log(log.reader(), Configuration(), Accountant())
    found = reported(capsys, str(archive))
    assert account.fleet.ettr == found["fleet"]["ettr"]  # type: ignore[index]
    assert len(account.incidents) == 2
    assert account.notes == []


def test_a_live_log_without_its_topics_is_refused() -> None:
    with pytest.raises(SettingsError, match="topics create"):
        account_of_log(MemoryLog({}).reader(), Configuration(), Accountant())


def test_of_a_month_only_the_files_around_it_are_read(tmp_path: Path) -> None:
    """A file a day, each with steps of its own job; the month is the 20th day alone."""
    for day in range(40):
        with ArchiveWriter(tmp_path / str(day), TELEMETRY, 0) as writer:
            for number in range(1, 4):
                at_s = day * DAY_S + 600.0 * number
                value = encode(steps(f"j{day}", number, at_s, 600.0))
                writer.append(10 * day + number, round((T0 + at_s) * 1_000), value)
        (file,) = (tmp_path / str(day) / TELEMETRY / "0").iterdir()
        target = tmp_path / "archive" / TELEMETRY / "0"
        target.mkdir(parents=True, exist_ok=True)
        file.rename(target / file.name)
    with ArchiveWriter(tmp_path / "archive", INCIDENTS, 0) as writer:
        writer.append(0, round(T0 * 1_000), b"{}")
    period = (T0 + 20 * DAY_S, T0 + 21 * DAY_S)
    accountant = Accountant(period)
    account = account_of_path(tmp_path / "archive", Configuration(), accountant)
    whole = Accountant()
    account_of_path(tmp_path / "archive", Configuration(), whole)
    assert len(whole.jobs.lives) == 40
    # Three days before it, and the file that may reach into them.
    assert sorted(accountant.jobs.lives) == [f"j{day}" for day in range(16, 21)]
    assert account.fleet.productive_s == pytest.approx(1_800.0)


@pytest.mark.slow
def test_a_month_of_steps_is_read_with_bounded_memory(tmp_path: Path) -> None:
    """30 days of a job with a step each minute, and frames that are only passed by."""
    frame = b'{"kind":"frame","at":1800000000,"node":"n","pad":"' + b"x" * 2_000 + b'"}'
    with ArchiveWriter(tmp_path, TELEMETRY, 0) as writer:
        for number in range(1, 43_200):
            at_ms = round((T0 + 60.0 * number) * 1_000)
            value = encode(steps("j", number, 60.0 * number, 60.0))
            writer.append(2 * number, at_ms, value, b"k", [("kind", b"steps")])
            writer.append(2 * number + 1, at_ms, frame, b"k", [("kind", b"frame")])
    with ArchiveWriter(tmp_path, INCIDENTS, 0) as writer:
        writer.append(0, round(T0 * 1_000), b"{}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    account = account_of_path(tmp_path, Configuration(), Accountant())
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert account.fleet.ettr == pytest.approx(1.0)
    assert grown_kb < 64 * 1_024


def test_what_closes_a_history_lies_behind_it_and_is_not_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = Path(__file__).parents[1] / "data" / "capture-ecn"
    archive = tmp_path / "imported"
    assert run(["import", str(capture), "--out", str(archive)], {}) == 0
    capsys.readouterr()
    with gzip.open(capture / "metrics/nic.om.gz", "rt") as lines:
        last_s = max(map(seen_s, lines))
    for path in (capture, archive):
        found = reported(capsys, str(path))
        period = found["period"]
        assert isinstance(period, list)
        assert period[1] < last_s + 60.0


def seen_s(line: str) -> float:
    """The time of one line of OpenMetrics; 0 where it has none."""
    return 0.0 if line.startswith("#") else float(line.rpartition(" ")[2])
