"""Bad input is one line that names the file and the remedy, exit status 2, and no traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from nodewarden.cli import run

SEED = 20260301


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive and its truth."""
    place = tmp_path_factory.mktemp("log") / "a"
    arguments = ["simulate", "--nodes", "8", "--minutes", "12", "--fault", "xid79@n003+300"]
    assert run([*arguments, "--out", str(place)], {}) == 0
    return place


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that the command said before it ended with 2."""
    capsys.readouterr()
    assert run([str(a) for a in arguments], {}) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    return said.err


def test_no_such_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "nowhere") in refused(capsys, "replay", tmp_path / "nowhere")


def test_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "replay", tmp_path)
    assert str(tmp_path) in line
    assert "metrics/*.om" in line


@pytest.mark.parametrize(
    "name",
    ["metrics/gpu.om", "metrics/gpu.om.gz", "kernel/n1.log.gz", "jobs.json", "capture.json"],
)
def test_random_bytes_under_a_known_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    print("seed", SEED)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(random.Random(SEED).randbytes(20_000))
    if not name.startswith(("metrics", "kernel")):
        (tmp_path / "kernel").mkdir()
        (tmp_path / "kernel" / "n1.log").write_text(
            "2026-02-25T12:00:00,000000+00:00 NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=a, gone\n"
        )
    line = refused(capsys, "replay", tmp_path)
    assert str(tmp_path) in line


def test_random_bytes_as_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nodewarden.telemetry" / "0" / "0.jsonl.zst"
    file.parent.mkdir(parents=True)
    file.write_bytes(random.Random(SEED).randbytes(20_000))
    line = refused(capsys, "replay", tmp_path)
    assert str(tmp_path) in line


def test_a_truth_that_names_an_unknown_node(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = json.loads((archive / "truth.json").read_bytes())
    truth["faults"][0]["nodes"] = ["n0003"]
    wrong = tmp_path / "truth.json"
    wrong.write_text(json.dumps(truth))
    line = refused(capsys, "replay", archive, "--score", wrong)
    assert str(wrong) in line
    assert "'n0003'" in line
    assert "n003" in line.replace("n0003", "")


def test_a_misspelt_settings_key_names_the_nearest(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text("[engine.zscore]\nwindow = 300\n")
    line = refused(capsys, "replay", archive, "--config", file)
    assert str(file) in line
    assert "window_s" in line


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_time_that_is_none(
    archive: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert "'yesterday'" in refused(capsys, "replay", archive, option, "yesterday")


@pytest.mark.parametrize("fault", ["xid97@n1+60", "xid79", "xid79@n1", "xid79@nobody+60"])
def test_a_fault_that_cannot_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    refused(capsys, "simulate", "--nodes", 8, "--fault", fault, "--out", tmp_path / "a")


def test_a_truncated_archive_is_read_to_its_last_whole_part_and_says_so(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut" / "nodewarden.telemetry" / "0" / "0.jsonl.zst"
    cut.parent.mkdir(parents=True)
    whole = (archive / "nodewarden.telemetry" / "0" / "0.jsonl.zst").read_bytes()
    cut.write_bytes(whole[: 3 * len(whole) // 4])
    capsys.readouterr()

    assert run(["replay", str(tmp_path / "cut"), "--json"], {}) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["truncated"] == 1
    assert summary["records"] > 0

    assert run(["replay", str(tmp_path / "cut")], {}) == 0
    assert "last whole part" in " ".join(capsys.readouterr().out.split())


def test_fail_on_ends_with_one_where_such_an_incident_is_found(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(archive), "--fail-on", "gpu_lost"], {}) == 1
    assert run(["replay", str(archive), "--fail-on", "any"], {}) == 1
    assert run(["replay", str(archive), "--fail-on", "storage"], {}) == 0
    capsys.readouterr()
