"""The past in other tools' forms replays as the archive or the capture that it is."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodewarden.cli import run
from telemetry.archive import read_archive
from telemetry.archive_line import ArchiveLine
from telemetry.topics import TELEMETRY

FAULT = "xid79@n003+300"


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same incident as an archive `a` and a capture `c`."""
    place = tmp_path_factory.mktemp("past")
    arguments = ["simulate", "--nodes", "8", "--minutes", "12", "--seed", "7", "--fault", FAULT]
    assert run([*arguments, "--out", str(place / "a"), "--capture", str(place / "c")], {}) == 0
    return place


def replay(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["replay", str(path), "--json", *more], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def imported(path: Path, out: Path) -> Path:
    assert run(["import", str(path), "--out", str(out)], {}) == 0
    return out


# -- Kafka exports


def lines_of(archive: Path) -> Iterator[ArchiveLine]:
    for line in read_archive(archive, TELEMETRY):
        assert isinstance(line, ArchiveLine)
        yield line


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def kcat(line: ArchiveLine) -> dict[str, Any]:
    headers = [part for name, value in line.headers for part in (name, value.decode())]
    return {
        "topic": line.topic, "partition": line.partition, "offset": line.offset,
        "tstype": "logappend", "ts": line.timestamp_ms, "broker": 1, "headers": headers,
        "key": text(line.key), "payload": text(line.value),
    }  # fmt: skip


def kcat_unpacked(line: ArchiveLine) -> dict[str, Any]:
    return {**kcat(line), "payload": json.loads(line.value or b"null")}


def lenses(line: ArchiveLine) -> dict[str, Any]:
    return {
        "key": text(line.key), "value": json.loads(line.value or b"null"), "headers": {},
        "metadata": {"offset": line.offset, "partition": line.partition,
                     "timestamp": line.timestamp_ms, "topic": line.topic},
    }  # fmt: skip


def aiven(line: ArchiveLine) -> dict[str, Any]:
    return {
        "key": text(line.key), "value": base64.b64encode(line.value or b"").decode(),
        "offset": line.offset, "timestamp": line.timestamp_ms, "headers": [],
    }  # fmt: skip


FORMS: dict[str, tuple[str, Callable[[ArchiveLine], dict[str, Any]]]] = {
    "kcat": ("export.json", kcat),
    "kcat, gzipped": ("export.json.gz", kcat),
    "kcat, payloads unpacked": ("export.jsonl", kcat_unpacked),
    "Connect, envelope": ("export.json", lenses),
    "Connect, fields": (f"{TELEMETRY}-0-0.jsonl", aiven),
}


def written(place: Path, name: str, rows: Iterator[dict[str, Any]]) -> Path:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return place / name


@pytest.mark.parametrize("form", FORMS)
def test_an_export_replays_to_the_same_json_as_the_archive(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    name, make = FORMS[form]
    export = written(tmp_path / "e", name, map(make, lines_of(past / "a")))
    right = replay(capsys, past / "a")

    assert replay(capsys, export) == right
    assert replay(capsys, tmp_path / "e") == right
    assert replay(capsys, imported(export, tmp_path / "i")) == right


def test_values_alone_arrive_when_they_were_sent(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Confluent's JsonFormat keeps neither key nor time; its file's name tells the place."""
    rows = (json.loads(line.value or b"") for line in lines_of(past / "a"))
    export = written(tmp_path / "e", f"{TELEMETRY}+0+0000000000.json", rows)
    right, found = replay(capsys, past / "a"), replay(capsys, export)

    assert found["summary"]["records"] == right["summary"]["records"]
    told = [(i["kind"], i["cause"], i["verdict"]["targets"]) for i in found["incidents"]]
    assert told == [(i["kind"], i["cause"], i["verdict"]["targets"]) for i in right["incidents"]]


def test_files_of_one_export_are_read_in_the_order_of_the_log(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where they overlap, as two runs of kcat do, and are named against their order."""
    rows = [kcat(line) for line in lines_of(past / "a")]
    half = len(rows) // 2
    written(tmp_path / "e", "z.json", iter(rows[: half + 10]))
    written(tmp_path / "e", "a.json", iter(rows[half:]))

    assert replay(capsys, tmp_path / "e") == replay(capsys, past / "a")
    assert run(["replay", str(tmp_path / "e")], {}) == 0
    assert "10 records stood at a place already read" in " ".join(capsys.readouterr().out.split())


def test_a_broken_line_of_an_export_costs_itself(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = written(tmp_path / "e", "x.json", map(kcat, lines_of(past / "a")))
    lines = export.read_bytes().split(b"\n")
    lines[100] = lines[100][:50]
    export.write_bytes(b"% Reached end of topic\n" + b"\n".join(lines))
    right, found = replay(capsys, past / "a"), replay(capsys, export)

    assert found["summary"]["rejected"] == 1
    assert [i["kind"] for i in found["incidents"]] == [i["kind"] for i in right["incidents"]]


def test_exports_and_captures_are_not_mixed_into_one_archive(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = written(tmp_path / "e", "x.json", map(kcat, lines_of(past / "a")))
    out = tmp_path / "i"
    assert run(["import", str(export), str(past / "c"), "--out", str(out)], {}) == 2
    assert "separately" in capsys.readouterr().err
    assert run(["import", str(past / "a"), "--out", str(out)], {}) == 2
    assert "replay reads it" in capsys.readouterr().err


# -- Prometheus' history

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)\{(.*)\} (\S+) (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def query_range(dump: Path) -> dict[str, Any]:
    """What `query_range` answers where Prometheus holds the dump."""
    series: dict[str, tuple[dict[str, str], list[list[Any]]]] = {}
    for line in dump.read_text("utf-8").splitlines():
        hit = _SAMPLE.match(line)
        if hit is None:
            continue
        key = f"{hit[1]}{{{hit[2]}}}"
        metric = {"__name__": hit[1], **dict(_LABEL.findall(hit[2]))}
        series.setdefault(key, (metric, []))[1].append([float(hit[4]), hit[3]])
    result = [{"metric": metric, "values": values} for metric, values in series.values()]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def with_answers(past: Path, place: Path, indent: int | None = None) -> Path:
    """The capture with its metrics as answers of the API."""
    for file in sorted((past / "c").rglob("*")):
        if file.is_file():
            target = place / file.relative_to(past / "c")
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".om":
                text = json.dumps(query_range(file), indent=indent)
                target.with_suffix(".json").write_text(text)
            else:
                target.write_bytes(file.read_bytes())
    return place


def test_query_range_and_openmetrics_give_the_same_incident(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = replay(capsys, past / "c")
    assert right["incidents"]

    assert replay(capsys, with_answers(past, tmp_path / "c")) == right
    assert replay(capsys, with_answers(past, tmp_path / "pretty", indent=2)) == right


@pytest.mark.parametrize("form", ["om", "json"])
def test_prometheus_history_alone_is_a_capture(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """A directory, or one file of it; without a job only what should be zero is judged."""
    place = tmp_path / "history"
    place.mkdir()
    for file in (past / "c" / "metrics").iterdir():
        data = file.read_text() if form == "om" else json.dumps(query_range(file))
        (place / f"{file.stem}.{form}").write_text(data)
    whole = replay(capsys, place)

    assert whole["summary"]["nodes"] == 8
    assert replay(capsys, imported(place, tmp_path / "i")) == whole
    assert replay(capsys, place / f"gpu.{form}")["summary"]["records"] > 0


def test_an_answer_without_data_is_no_incident_and_no_zero(
    past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = '{"status":"success","data":{"resultType":"matrix","result":[]}}'
    place = with_answers(past, tmp_path / "c")
    (place / "metrics" / "more.json").write_text(empty)
    assert replay(capsys, place) == replay(capsys, past / "c")

    (tmp_path / "alone.json").write_text(empty)
    assert run(["replay", str(tmp_path / "alone.json")], {}) == 2
    assert "nothing in its files was recognised" in capsys.readouterr().err


# -- wandb


def test_a_wandb_run_and_its_exported_history_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loss that becomes NaN at step 40 is told by the run, its history and their imports."""
    files = tmp_path / "run-20260225_120000-a1b2c3d4" / "files"
    files.mkdir(parents=True)
    start_s = 1_772_020_800.0
    rows = [
        {"_step": step, "_timestamp": start_s + 12.0 * step, "_runtime": 12.0 * step,
         "train/loss": "NaN" if step >= 40 else 3.0, "train/grad_norm": 1.0}
        for step in range(1, 60)
    ]  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (files / "wandb-history.jsonl").write_text(text)
    (tmp_path / "exported.jsonl").write_text(text)

    for number, path in enumerate((files.parent, tmp_path / "exported.jsonl")):
        told = replay(capsys, path)
        assert told["summary"]["records"] > 50
        assert ["loss_anomaly"] == [incident["kind"] for incident in told["incidents"]]
        assert replay(capsys, imported(path, tmp_path / f"i{number}")) == told
