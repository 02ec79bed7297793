"""A wandb run's directory is a capture of one job: its history, and what the run printed."""

from __future__ import annotations

import json
from pathlib import Path

from collectors.capture import open_capture
from collectors.layout import is_capture
from telemetry.records import Event, Steps
from telemetry.settings import EngineSettings

START_S = 1_772_020_800.0


def run(tmp_path: Path, *output: str) -> Path:
    """No real history is public: the field names are those of wandb's documentation."""
    files = tmp_path / "run-20260225_120000-a1b2c3d4" / "files"
    files.mkdir(parents=True)
    rows = [
        {"_step": step, "_runtime": 12.0 * step, "_timestamp": START_S + 12.0 * step,
         "train/loss": 3.0 - step / 10.0, "train/grad_norm": 1.0}
        for step in range(1, 6)
    ]  # fmt: skip
    (files / "wandb-history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (files / "output.log").write_text("".join(f"{line}\n" for line in output))
    return files.parent


def read(path: Path) -> tuple[list[Steps], list[Event]]:
    with open_capture(path, EngineSettings(), "UTC") as capture:
        records = list(capture.records())
    return (
        [one for one in records if isinstance(one, Steps)],
        [one for one in records if isinstance(one, Event)],
    )


def test_its_history_becomes_the_job_s_steps(tmp_path: Path) -> None:
    path = run(tmp_path)
    assert is_capture(path)
    steps, events = read(path)
    assert {"a1b2c3d4"} == {one.job for one in steps}
    assert [[1], [2], [3], [4], [5]] == [one.step for one in steps]
    assert [None, 12.0, 12.0, 12.0, 12.0] == [one.step_time_s[0] for one in steps]
    assert [] == events


def test_what_the_run_printed_adds_its_failures_and_tells_no_step_twice(tmp_path: Path) -> None:
    path = run(
        tmp_path, "[2026-02-25 12:00:36] iteration 3/ 9 | elapsed time per iteration (ms): 12000 |",
        "Traceback (most recent call last):", "ValueError: wrong shape",
    )  # fmt: skip
    steps, events = read(path)
    assert 5 == len(steps)
    assert [("user_code", START_S + 36.0)] == [(one.class_, one.at) for one in events]
