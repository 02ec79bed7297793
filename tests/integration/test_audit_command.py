"""`nodewarden audit`: an archive's decisions made again, its verdicts compared with replay's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.ledger_log import decode, encode
from actions.policy import verdict
from actions.rails import decide, recheck
from actions.site import Site as Facts
from nodewarden.cli import run
from nodewarden.logs import open_logs
from streams.fold import Fold, Said
from streams.replay import Outcome, drive
from telemetry.actions import ActionRecord, ActRules, Decision, Request
from telemetry.archive import ArchiveWriter, read_archive
from telemetry.archive_line import ArchiveLine
from telemetry.findings import Incident
from telemetry.records import Arrived
from telemetry.settings import ActSettings, Configuration, RailSettings
from telemetry.topics import ACTIONS, INCIDENTS
from tests.acting import Site, asked

SETTINGS = ActSettings(
    rails=RailSettings(mode_default="auto", cluster_nodes_per_hour=1), first_observe_s=0.0,
    snapshot_records=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Telemetry, and what an action service made of the incidents in it."""
    path = tmp_path_factory.mktemp("audited") / "archive"
    faults = ["--fault", "xid79@n003+240", "--fault", "xid79@n005+300"]
    arguments = ["simulate", "--nodes", "8", "--minutes", "9", "--seed", "7", *faults]
    assert run([*arguments, "--out", str(path)], {}) == 0
    of = acted(path)
    for topic in (INCIDENTS, ACTIONS):
        with ArchiveWriter(path, topic) as writer:
            for line in of.log.records((topic, 0), 0):
                writer.append(line.offset, line.timestamp_ms, line.value)
    return path


def acted(path: Path) -> Site:
    """The service beside the engine, told of each revision when it was said."""
    of = Site(SETTINGS, decide)
    of.recheck = recheck
    one = of.start()
    one.step()

    def watch(_arrived: Arrived, said: Said, fold: Fold) -> None:
        if not said.incidents:
            return
        of.clock.set(max(fold.now, of.clock.time_s()))
        of.facts = Facts(
            nodes=8, blind_nodes=0, measured_at=fold.now, telemetry_at=fold.now,
            listing_at=fold.now,
        )  # fmt: skip
        of.tell(*said.incidents)
        one.step(2)

    (log,) = open_logs(path, Configuration(), None)
    drive(log.records, Fold(verdict, log.kind), Outcome(), (watch,))
    one.ask(asked("approve", "nothing"))
    of.start().step(2)
    return of


def audited(
    capsys: pytest.CaptureFixture[str], path: Path, *more: str
) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON object."""
    capsys.readouterr()
    status = run(["audit", str(path), "--json", *more], {})
    return status, json.loads(capsys.readouterr().out)


def altered(made: Path, path: Path, change: Callable[[ActionRecord], ActionRecord]) -> Path:
    """The same archive with other actions."""
    shutil.copytree(made, path)
    shutil.rmtree(path / ACTIONS)
    with ArchiveWriter(path, ACTIONS) as writer:
        for line in read_archive(made, ACTIONS, 0):
            assert isinstance(line, ArchiveLine)
            record = decode(line.value)
            assert record is not None
            writer.append(line.offset, line.timestamp_ms, encode(change(record)))
    return path


def test_all_comes_out_byte_for_byte_and_as_replay_says(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = audited(capsys, made)
    assert (status, found["clean"]) == (0, True), found
    assert found["decisions"]["equal"] > 1
    assert found["decisions"]["differs"] == found["decisions"]["unchecked"] == 0
    assert found["ladder"]["verdicts"]["equal"] > 1
    assert found["ladder"]["verdicts"]["differs"] == 0
    assert (found["requests_refused"], found["refusals"][0]["verb"]) == (1, "approve")
    assert found["snapshots"] == found["torn"] == []
    assert twice(capsys, made)


def twice(capsys: pytest.CaptureFixture[str], path: Path) -> bool:
    return audited(capsys, path, "--no-ladder") == audited(capsys, path, "--no-ladder")


def test_people_see_what_differs_and_where(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(record: ActionRecord) -> ActionRecord:
        if isinstance(record, Decision) and record.state == "approved":
            return msgspec.structs.replace(record, reason="because\x1b[31m")
        return record

    assert run(["audit", str(altered(made, tmp_path / "a", other)), "--no-ladder"], {}) == 1
    said = capsys.readouterr().out
    assert "DIFFERS" in said
    assert "reason: logged" in said
    assert "\x1b" not in said
    assert "verdicts: not compared" in said
    assert "1 x approve by otto: no decision" in said


def test_a_verdict_that_the_ladder_never_gave_is_found(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(value: bytes | None) -> bytes:
        incident = msgspec.json.decode(value or b"", type=Incident)
        verdicts = [msgspec.structs.replace(one, reason="of old") for one in incident.verdicts]
        return msgspec.json.encode(
            msgspec.structs.replace(incident, verdict=verdicts[0], verdicts=verdicts)
        )

    def other(record: ActionRecord) -> ActionRecord:
        if not isinstance(record, Decision):
            return record
        verdict = msgspec.structs.replace(record.verdict, reason="of old")
        return msgspec.structs.replace(record, verdict=verdict)

    path = altered(made, tmp_path / "a", other)
    shutil.rmtree(path / INCIDENTS)
    with ArchiveWriter(path, INCIDENTS) as writer:
        for line in read_archive(made, INCIDENTS, 0):
            assert isinstance(line, ArchiveLine)
            writer.append(line.offset, line.timestamp_ms, told(line.value))
    status, found = audited(capsys, path)
    assert status == 1
    assert found["decisions"]["differs"] == 0
    assert found["ladder"]["differing"][0]["reason"] == "replay gives this incident no such verdict"


def test_an_incident_that_the_engine_told_otherwise_is_found(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    shutil.copytree(made, path)
    shutil.rmtree(path / INCIDENTS)
    with ArchiveWriter(path, INCIDENTS) as writer:
        for line in read_archive(made, INCIDENTS, 0):
            assert isinstance(line, ArchiveLine)
            incident = msgspec.json.decode(line.value or b"", type=Incident)
            told = msgspec.structs.replace(incident, findings=["another"])
            writer.append(line.offset, line.timestamp_ms, msgspec.json.encode(told))
    status, found = audited(capsys, path)
    assert (status, found["decisions"]["differs"]) == (1, 0)
    reason = "replay tells this revision of the incident otherwise"
    assert found["ladder"]["differing"][0]["reason"] == reason


def test_other_settings_show_what_they_would_have_changed(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[act]\nfirst_observe_s = 0.0\n[act.rails]\nmode_default = "auto"\n'
    for number, status in ((1, 0), (5, 1)):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"{text}cluster_nodes_per_hour = {number}\n")
        found = audited(capsys, made, "--no-ladder", "--against", str(file))
        assert found[0] == status, found
    assert "of 1 in an hour" in json.dumps(found[1]["differing"])
    assert "of 5 in an hour" in json.dumps(found[1]["differing"])


def test_without_telemetry_or_incidents_it_says_what_is_not_checked(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made / ACTIONS, tmp_path / "a" / ACTIONS)
    status, found = audited(capsys, tmp_path / "a")
    assert (status, found["ladder"]) == (0, None)
    assert found["decisions"]["unchecked"] > 0


def test_what_is_no_such_archive_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path, tmp_path / "none"):
        assert run(["audit", str(path)], {}) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_settings_and_refusals_stand_in_it(made: Path) -> None:
    records = [decode(line.value) for line in read_archive(made, ACTIONS, 0)
               if isinstance(line, ArchiveLine)]  # fmt: skip
    (rules,) = [one for one in records if isinstance(one, ActRules)]
    assert rules.settings["rails"]["cluster_nodes_per_hour"] == 1
    assert [one.accepted for one in records if isinstance(one, Request)] == [False]
