"""Captures: order, names, assumptions that are said, and what is refused in one line."""

from __future__ import annotations

import gzip
import json
import random
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.capture import capture_size, is_capture, open_capture
from collectors.files import looks_like_text
from telemetry.errors import InputError
from telemetry.records import (
    KIND_ORDER,
    Allocation,
    Begin,
    End,
    Event,
    Frame,
    Hardware,
    Record,
    Rejected,
    Settings,
    Steps,
)  # fmt: skip
from telemetry.settings import EngineSettings, TickSettings, settings_digest

XID79 = Path(__file__).parents[1] / "data" / "capture-xid79"
START_S = 1_772_020_800.0
FELL = "2026-02-25T12:00:20,5 NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.\n"
STEP = (
    "[2026-02-25 12:00:30] iteration 5/ 9 | elapsed time per iteration (ms): 5000.0 |"
    " lm loss: 2 |\n"
)


def om(node: str, count: int = 5, name: str = "DCGM_FI_DEV_GPU_TEMP", step_s: int = 15) -> str:
    labels = f'{{Hostname="{node}",gpu="0"}}'
    return "".join(f"{name}{labels} {60 + at} {START_S + step_s * at}\n" for at in range(count))


def make(path: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, tz: str | None = "UTC") -> tuple[list[Record | Rejected], list[str]]:
    with open_capture(path, EngineSettings(), tz) as capture:
        return list(capture.records()), [*capture.notes, *capture.torn]


def only(records: list[Record | Rejected], kind: type) -> list[object]:
    return [record for record in records if isinstance(record, kind)]


def refusal(path: Path, tz: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(path, tz)
    said = str(caught.value)
    assert "\n" not in said
    assert str(path) in said or "--tz" in said
    return said


def test_the_hand_made_capture_is_read_whole() -> None:
    records, _ = read(XID79)
    kinds = Counter(type(record).__name__ for record in records)
    assert {
        "Begin": 1, "Settings": 1, "Hardware": 8, "Allocation": 1, "Frame": 328, "Event": 3,
        "End": 1,
    } == kinds  # fmt: skip
    assert [Begin, Settings, *[Hardware] * 8, Allocation] == [type(one) for one in records[:11]]
    events = [record for record in records if isinstance(record, Event)]
    assert [("pcie", None), ("xid", 79), ("xid", 45)] == [(e.type, e.code) for e in events]
    assert {"n3"} == {event.node for event in events}
    frames = [r for r in records if isinstance(r, Frame) and r.node == "n3"]
    lost = [frame.at for frame in frames if frame.metrics["gpu_power_watts"][1] is None]
    assert START_S + 360.25 == lost[0]


def test_records_stand_in_the_order_of_time_kind_node_and_source() -> None:
    records, _ = read(XID79)
    keys = [
        (record.at, KIND_ORDER[type(record)], record.node, record.source)
        for record in records[3:-1]
        if not isinstance(record, Rejected)
    ]
    assert sorted(keys) == keys


def test_every_stream_counts_from_zero_without_a_hole() -> None:
    streams: dict[tuple[str, str], list[int]] = {}
    for record in read(XID79)[0]:
        assert not isinstance(record, Rejected)
        assert (0.0, None) == (record.started_at, record.sent_at)
        streams.setdefault((record.node, record.source), []).append(record.seq)
    assert all(seqs == list(range(len(seqs))) for seqs in streams.values())
    assert {("n3", "kernel"), ("n3", "gpu"), ("", "capture")} <= set(streams)


def test_reading_twice_says_the_same() -> None:
    with open_capture(XID79, EngineSettings(), "UTC") as capture:
        assert list(capture.records()) == list(capture.records())


def test_settings_carry_the_capture_s_intervals_and_cluster(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"metrics/a.om": om("n1") + om("n1", 4, "node_load1", 60),
         "capture.json": '{"cluster": "blue", "timezone": "Asia/Tokyo"}'},
    )  # fmt: skip
    given_ = EngineSettings(ticks=TickSettings(interval_s={"host": 7.0, "gpu": 3.0}))
    with open_capture(tmp_path, given_) as capture:
        said = next(r for r in capture.records() if isinstance(r, Settings))
        assert all(note.startswith("nobody sends the metrics") for note in capture.notes)
    assert {"gpu": 15.0, "host": 7.0, "nic": 60.0} == said.settings.ticks.interval_s
    assert ("blue", settings_digest(said.settings)) == (said.settings.cluster, said.digest)
    assert 16 == len(said.digest)


def test_the_end_lies_past_every_timer(tmp_path: Path) -> None:
    make(tmp_path, {"metrics/a.om": om("n1", 4, step_s=60)})
    end = read(tmp_path)[0][-1]
    assert isinstance(end, End)
    assert START_S + 180 + 2 * 60 + 600 == end.at


def test_all_kinds_of_files_meet_in_one_order(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"metrics/a.om": om("n1.example.org"), "kernel/n1.log": FELL,
         "training/7/train.log": STEP, "jobs.json": '{"jobs": [{"id": "7", "nodes": ["n1"]}]}'},
    )  # fmt: skip
    records, notes = read(tmp_path)
    first, second = notes
    assert 'no cluster named in capture.json: it is called "capture"' == first
    assert second.startswith("nobody sends the metrics that would show: thermal slowdown")
    assert ["Begin", "Settings", "Allocation", "Frame", "Frame", "Event", "Steps", "Frame"] == [
        type(record).__name__ for record in records[:8]
    ]
    assert {"n1", ""} == {record.node for record in records if not isinstance(record, Rejected)}
    assert ["7"] == [record.job for record in records if isinstance(record, Steps)]


def test_names_that_do_not_meet_are_said(tmp_path: Path) -> None:
    jobs = {"jobs": [{"id": "7", "nodes": ["n1", "n2"]}]}
    make(
        tmp_path,
        {"metrics/a.om": om("n1") + om("x1"), "kernel/x2.log": FELL, "training/run/a.log": STEP,
         "jobs.json": json.dumps(jobs)},
    )  # fmt: skip
    notes = "\n".join(read(tmp_path)[1])
    assert "job run: has a training log, and no listing names it" in notes
    assert "2 of 3 nodes with telemetry stand neither in a job nor in the topology" in notes
    assert notes.count(": x1, x2") == 1


def test_gzipped_files_say_the_same_as_plain_ones(tmp_path: Path) -> None:
    plain = make(tmp_path / "a" / "c", {"metrics/a.om": om("n1"), "kernel/n1.log": FELL})
    packed = make(
        tmp_path / "b" / "c",
        {"metrics/a.om.gz": gzip.compress(om("n1").encode()),
         "kernel/n1.log.gz": gzip.compress(FELL[:30].encode()) + gzip.compress(FELL[30:].encode())},
    )  # fmt: skip
    assert read(plain)[0] == read(packed)[0]


def test_a_truncated_gzip_is_read_to_its_last_whole_line_and_said(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{Hostname="n1",gpu="0"}} {rng.uniform(50, 70):.6f}'
        f" {START_S + 15 * at}\n"
        for at in range(2_000)
    )
    data = gzip.compress(rows.encode())
    make(tmp_path, {"metrics/a.om.gz": data[: len(data) // 2]})
    records, notes = read(tmp_path)
    frames = len(only(records, Frame))
    assert 500 < frames < 1_500
    assert "metrics/a.om.gz: cut short" in notes
    assert not only(records, Rejected)


def test_a_damaged_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    data = bytearray(gzip.compress((om("n1", 3_000)).encode()))
    data[len(data) // 2] ^= 0xFF
    make(tmp_path, {"metrics/a.om.gz": bytes(data), "metrics/b.om": om("n2")})
    records, notes = read(tmp_path)
    assert only(records, Frame)
    assert any(note.startswith("metrics/a.om.gz: damaged") for note in notes)


def test_rejected_lines_keep_their_place(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"metrics/a.om": om("n1") + 'DCGM_FI_DEV_GPU_TEMP{Hostname="n1",gpu="0"} 61\n',
         "kernel/n1.log": FELL.replace("79", "abc")},
    )  # fmt: skip
    records, _ = read(tmp_path)
    rejected = [record for record in records if isinstance(record, Rejected)]
    assert ["metrics/a.om:6", "kernel/n1.log:1"] == [record.place for record in rejected]
    assert [None, START_S + 20.5] == [record.at for record in rejected]
    times = [record.at for record in records if record.at is not None]
    assert sorted(times) == times


def test_steps_without_a_time_are_counted_and_said(tmp_path: Path) -> None:
    undated = STEP.split("] ")[1]
    make(tmp_path, {"metrics/a.om": om("n1"), "training/7/rank-3.log": undated})
    records, notes = read(tmp_path)
    assert not only(records, Steps)
    assert any("1 steps or failures without any time" in note for note in notes)


def test_a_clock_file_dates_them_and_that_is_said(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"training/7/train.log": STEP.split("] ")[1],
         "training/7/clock.json": json.dumps({"start": START_S})},
    )  # fmt: skip
    records, notes = read(tmp_path)
    assert [START_S + 5.0] == [r.at for r in records if isinstance(r, Steps)]
    assert any("reckoned from clock.json" in note for note in notes)


def test_the_same_step_in_the_logs_of_two_ranks_is_one_step(tmp_path: Path) -> None:
    make(tmp_path, {"training/7/rank-0.log": STEP, "training/7/rank-1.log": STEP})
    assert 1 == len(only(read(tmp_path)[0], Steps))


def test_a_training_exporter_s_gauges_become_steps_of_the_only_job(tmp_path: Path) -> None:
    rows = "".join(
        f'{name}{{job="exporter"}} {value + at} {START_S + 15 * at}\n'
        for name, value in (("training_step", 7), ("training_loss", 2))
        for at in range(3)
    )
    make(
        tmp_path,
        {"metrics/t.om": rows, "jobs.json": '{"jobs": [{"id": "7", "nodes": ["n1"]}]}'},
    )
    steps = [record for record in read(tmp_path)[0] if isinstance(record, Steps)]
    assert [("7", [7], [2.0]), ("7", [8], [3.0])] == [(s.job, s.step, s.loss) for s in steps[:2]]


def test_lines_without_a_zone_are_in_the_capture_s(tmp_path: Path) -> None:
    make(tmp_path, {"kernel/n1.log": FELL})
    there = [r.at for r in read(tmp_path, "Asia/Tokyo")[0] if isinstance(r, Event)]
    assert [START_S + 20.5 - 9 * 3600] == there
    _, notes = read(tmp_path, None)
    assert any("read as UTC" in note for note in notes)


def test_the_zone_is_the_option_s_then_the_capture_s_then_the_settings(tmp_path: Path) -> None:
    make(tmp_path, {"kernel/n1.log": FELL})

    def hours(tz: str | None, tz_default: str) -> float:
        with open_capture(tmp_path, EngineSettings(), tz, tz_default=tz_default) as capture:
            return (START_S + 20.5 - capture.first_s) / 3600

    assert (9, 1, 9) == (
        hours(None, "Asia/Tokyo"), hours("Europe/Berlin", "Asia/Tokyo"), hours("Asia/Tokyo", "UTC"),
    )  # fmt: skip
    make(tmp_path, {"capture.json": '{"timezone": "Asia/Tokyo"}'})
    assert (9, 1) == (hours(None, "UTC"), hours("Europe/Berlin", "UTC"))


def test_values_that_became_null_are_counted_and_said(tmp_path: Path) -> None:
    rows = om("n1") + om("n2").replace(" 62 ", " 9223372036854775794 ")
    make(tmp_path, {"metrics/a.om": rows})
    with open_capture(tmp_path, EngineSettings(), "UTC") as capture:
        assert {("gpu_temperature_celsius", "blank"): 1} == capture.blanked
        assert any("gpu_temperature_celsius 1 blank" in note for note in capture.notes)


def test_gauges_that_cannot_be_joined_to_a_step_are_said(tmp_path: Path) -> None:
    make(tmp_path, {"metrics/a.om": f'training_loss{{job_id="7"}} 2 {START_S}\n' + om("n1")})
    records, notes = read(tmp_path)
    assert not only(records, Steps)
    assert any("without a training_step" in note for note in notes)


def test_a_rank_s_gauges_are_its_node_s_steps(tmp_path: Path) -> None:
    rows = "".join(
        f'training_step{{job_id="7",rank="{rank}",instance="n{rank}:1"}} 5 {START_S}\n'
        for rank in (1, 2)
    )
    make(tmp_path, {"metrics/a.om": rows})
    steps = [record for record in read(tmp_path)[0] if isinstance(record, Steps)]
    assert [("n1", [1]), ("n2", [2])] == [(one.node, one.ranks) for one in steps]


def test_progress_reaches_the_whole(tmp_path: Path) -> None:
    make(tmp_path, {"metrics/a.om": om("n1", 500), "kernel/n1.log": FELL})
    seen: list[tuple[int, int]] = []
    with open_capture(
        tmp_path, EngineSettings(), "UTC", on_progress=lambda done, of: seen.append((done, of))
    ):
        pass
    assert (capture_size(tmp_path), capture_size(tmp_path)) == seen[-1]


def test_a_capture_is_known_by_its_names(tmp_path: Path) -> None:
    assert not is_capture(tmp_path)
    assert is_capture(make(tmp_path, {"kernel/n1.log": ""}))
    assert is_capture(XID79)


RANDOM = random.Random(3).randbytes(5_000)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"jobs.json": '{"jobs": []}'},
        {"metrics/a.txt": om("n1")},
        {"metrics/a.om": "", "kernel/n1.log": ""},
        {"metrics/a.om": 'up{instance="n1"} 1 1772020800\n'},
        {"metrics/a.om": RANDOM},
        {"metrics/a.om.gz": RANDOM},
        {"metrics/a.om.gz": om("n1")},
        {"metrics/a.om.gz": gzip.compress(RANDOM)},
        {"kernel/n1.log": RANDOM},
        {"training/7/train.log": RANDOM},
        {"metrics/a.om": om("n1"), "jobs.json": RANDOM},
        {"metrics/a.om": om("n1"), "jobs.json": "{"},
        {"metrics/a.om": om("n1"), "jobs.json": '{"jobs": [{"id": "1", "nodes": 3}]}'},
        {"metrics/a.om": om("n1"), "capture.json": "[1]"},
        {"metrics/a.om": om("n1"), "capture.json": '{"timezone": "Mars/Olympus"}'},
        {"training/7/train.log": STEP, "training/7/clock.json": '{"start": "noon"}'},
        {"training/7/train.log": STEP, "training/7/clock.json": '{"start": 5}'},
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, files: dict[str, str | bytes]
) -> None:
    refusal(make(tmp_path, files))


def test_no_directory_and_no_zone_are_refused(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere")
    refusal(make(tmp_path, {"metrics/a.om": om("n1")}), "Mars/Olympus")
    refusal(tmp_path, "../../etc/passwd")


def test_a_log_with_a_few_stray_bytes_is_still_text() -> None:
    assert looks_like_text(FELL.encode() + b"\x00\xff")
    assert looks_like_text("naïve größe 你好 \x1b[31mred".encode())
    assert not looks_like_text(RANDOM[:4096])


@pytest.fixture(name="no_socket")
def _no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a capture is read without a network")

    monkeypatch.setattr(socket, "socket", refuse)


@pytest.mark.usefixtures("no_socket")
def test_reading_opens_no_socket() -> None:
    assert read(XID79)[0]


@given(
    name=st.sampled_from(["metrics/a.om", "kernel/n1.log", "training/7/train.log"]),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_damage_is_a_refusal_a_rejection_or_nothing(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    files = {"metrics/a.om": om("n1", 20), "kernel/n1.log": FELL, "training/7/train.log": STEP}
    content = files[name].encode()
    at = data.draw(st.integers(0, len(content)))
    junk = data.draw(st.binary(max_size=64))
    cut = data.draw(st.integers(0, 200))
    damaged: dict[str, str | bytes] = {**files, name: content[:at] + junk + content[at + cut :]}
    try:
        records, _ = read(make(tmp_path, damaged))
    except InputError:
        return
    encoded = [msgspec.json.encode(record) for record in records]
    assert b"NaN" not in b"".join(encoded)
    assert isinstance(records[-1], End)
