"""What other settings would have said of the same past: lost, new, another verdict, nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodewarden.cli import run
from telemetry.archive import ArchiveWriter
from telemetry.attempts import Attempt
from telemetry.codec import encode
from telemetry.records import Arrived, Control, Record
from telemetry.topics import TELEMETRY
from tests.folding import folded, simulated

ECN = ("ecn@n003+600",)
PP = {"nodes": ["n001", "n004", "n006", "n007"], "scores": [0.1, 0.9, 0.8, 0.1], "group": "pp 3"}


def archive(place: Path, records: Sequence[tuple[float, Record]]) -> Path:
    with ArchiveWriter(place / "a", TELEMETRY, 0) as writer:
        for offset, (arrival, record) in enumerate(records):
            writer.append(offset, round(arrival * 1000.0), encode(record), b"main")
    return place / "a"


def past(log: Sequence[Arrived]) -> list[tuple[float, Record]]:
    return [(one.arrival, one.record) for one in log]  # type: ignore[misc]


def settings(place: Path, name: str, text: str) -> str:
    file = place / f"{name}.toml"
    file.write_text(text)
    return str(file)


def what_if(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert 0 == run(["replay", str(path), "--json", *more], {})
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def ecn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive(tmp_path_factory.mktemp("ecn"), past(simulated(8, 20.0, ECN)))


def test_a_stricter_threshold_loses_an_incident(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = settings(tmp_path, "strict", "[engine.straggler]\nslow_ratio = 1.9\n")

    found = what_if(capsys, ecn, "--against", strict)

    (lost,) = found["differences"]
    assert ("only first", None, None) == (lost["change"], lost["second"], lost["delay_s"])
    assert ["n003"] == lost["first"]["verdict"]["targets"]
    (setting,) = found["settings"]
    assert {"key": "engine.straggler.slow_ratio", "first": 1.1, "second": 1.9} == setting

    back = what_if(capsys, ecn, "--config", strict, "--against", settings(tmp_path, "plain", ""))
    (new,) = back["differences"]
    assert "only second" == new["change"]
    assert lost["first"] == new["second"]


def test_the_first_is_what_the_archive_recorded_and_both_sides_are_what_replay_says(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = what_if(capsys, ecn)
    strict = settings(tmp_path, "strict", "[engine.straggler]\nslow_ratio = 1.9\n")

    found = what_if(capsys, ecn, "--against", strict)

    assert plain["incidents"] == [one["first"] for one in found["differences"]]
    assert plain["summary"] == found["summary"]["first"]


def test_a_replay_runs_with_what_the_archive_recorded_and_says_so_where_other_settings_are_named(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = settings(tmp_path, "strict", "[engine.straggler]\nslow_ratio = 1.9\n")
    plain = what_if(capsys, ecn)

    assert plain == what_if(capsys, ecn, "--config", strict)
    assert 0 == run(["replay", str(ecn), "--config", strict], {})
    assert f"otherwise shows --against {strict}" in capsys.readouterr().out
    assert 0 == run(["replay", str(ecn), "--config", settings(tmp_path, "same", "")], {})
    assert "--against" not in capsys.readouterr().out


def test_the_same_settings_change_nothing(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = settings(tmp_path, "same", "")

    assert 0 == run(["replay", str(ecn), "--against", same, "--fail-on", "any"], {})
    text = capsys.readouterr().out

    assert "Nothing changes: 1 incident told alike." in text
    assert "the engine's settings do not differ" in text
    found = what_if(capsys, ecn, "--config", same, "--against", same)
    assert ([], [], 1) == (found["settings"], found["differences"], found["same"])


def test_a_slower_rule_is_shown_with_its_delay_and_an_exit_status_that_asks_for_its_kind(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = settings(
        tmp_path, "slow", "[engine.straggler]\nrecent_steps = 40\nrecent_slow_steps = 40\n"
    )
    (one,) = what_if(capsys, ecn, "--against", slow)["differences"]

    assert "verdict" == one["change"]
    assert "at" in one["fields"]
    assert (
        30.0
        < one["delay_s"]
        == pytest.approx(one["second"]["verdict"]["at"] - one["first"]["verdict"]["at"], abs=0.001)
    )
    kind = one["first"]["kind"]
    assert 1 == run(["replay", str(ecn), "--against", slow, "--fail-on", kind], {})
    assert "later" in capsys.readouterr().out
    assert 0 == run(["replay", str(ecn), "--against", slow, "--fail-on", "gpu_lost"], {})


def test_another_policy_evicts_the_group_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated(8, 40.0, ("mfu-decline@n000+600",))
    incident = next(one for one in folded(log)[1].sorted_incidents() if one.kind == "job_slow")
    told = Attempt(step="stacks", at=log[-1].arrival - 60.0, incident=incident.id, told=True, **PP)  # type: ignore[arg-type]
    control = Control(
        at=told.at, node="", source="act", started_at=0.0, seq=0, action="attempted",
        target=incident.id, by="otto", attempt=told,
    )  # fmt: skip
    records = sorted([*past(log), (told.at, control)], key=lambda item: item[0])
    place = archive(tmp_path, records)
    whole = settings(tmp_path, "whole", '[engine.policy]\ngroup_eviction = "whole"\n')

    found = what_if(capsys, place, "--against", whole)

    (one,) = found["differences"]
    assert {"targets", "reason"} == set(one["fields"])
    assert ["n004", "n006"] == one["first"]["verdict"]["targets"]
    assert PP["nodes"] == one["second"]["verdict"]["targets"]
    assert "group_eviction is whole" in one["second"]["verdict"]["reason"]
    assert 0.0 == one["delay_s"]
    assert 0 == run(["replay", str(place), "--against", whole], {})
    text = capsys.readouterr().out
    assert 'engine.policy.group_eviction: "cheaper" -> "whole"' in text
    assert "targets, reason" in text
    assert "the same" in text


@pytest.mark.parametrize("form", ["a", "c"])
def test_captures_and_a_part_of_the_time_are_compared_too(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["simulate", "--nodes", "8", "--minutes", "20", "--seed", "7", "--fault", ECN[0]]
    assert 0 == run([*asked, "--out", str(tmp_path / "a"), "--capture", str(tmp_path / "c")], {})
    place = tmp_path / form
    strict = settings(tmp_path, "strict", "[engine.straggler]\nslow_ratio = 1.9\n")
    truth = ("--score", str(place / "truth.json"))

    found = what_if(capsys, place, "--against", strict, *truth)

    assert ["only first"] == [one["change"] for one in found["differences"]]
    assert (1, 0) == (found["score"]["first"]["found"], found["score"]["second"]["found"])
    before_s = str(found["differences"][0]["first"]["opened_at"] - 60.0)
    early = what_if(capsys, place, "--against", strict, "--to", before_s)
    assert ([], 0) == (early["differences"], early["same"])
    late = what_if(capsys, place, "--against", strict, "--from", before_s)
    assert late["summary"]["first"]["cold_start"] is late["summary"]["second"]["cold_start"] is True


def test_what_does_not_go_together_is_refused_with_one_line(
    ecn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = settings(tmp_path, "same", "")
    broken = settings(tmp_path, "broken", "[engine.policy]\ngroup_evictoin = 1\n")

    assert 2 == run(["replay", str(ecn), "--against", same, "--timing"], {})
    assert 2 == run(["replay", str(ecn), "--against", same, "--report", str(tmp_path / "r")], {})
    assert 2 == run(["replay", str(ecn), "--against", str(tmp_path / "none.toml")], {})
    capsys.readouterr()
    assert 2 == run(["replay", str(ecn), "--against", broken], {})
    assert "did you mean group_eviction?" in capsys.readouterr().err
