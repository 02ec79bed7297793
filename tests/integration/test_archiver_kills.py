"""kill -9 of the archiver at each named point, again and again: no gap, no repeat, same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.archive import Torn, archive_files, read_archive
from telemetry.archive_manifest import parse_manifest
from telemetry.topics import TOPICS
from tests.dying_archiver import POINTS, memory_log

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STARTS_MAX = 30


def start(out: Path, point: str, number: int) -> int:
    program = [sys.executable, "-m", "tests.dying_archiver", str(out), point, str(number)]
    return subprocess.run(program, cwd=ROOT, timeout=60, check=False).returncode


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point_again_and_again_the_archive_equals_the_log(
    point: str, tmp_path: Path
) -> None:
    deaths = 0
    while (status := start(tmp_path, point, 2 + 12 * deaths)) != 0:
        assert status == -signal.SIGKILL
        deaths += 1
        assert deaths < STARTS_MAX
    assert deaths >= 2

    log = memory_log()
    places = [place for topic in TOPICS for place in log.places(topic.name)]
    for place in places:
        found = list(read_archive(tmp_path, *place))
        assert not [torn for torn in found if isinstance(torn, Torn)]
        assert found == list(log.records(place, 0))
    assert not list(tmp_path.rglob("*.damaged"))

    said = parse_manifest((tmp_path / "manifest.json").read_bytes())
    newest = {(file.topic, file.partition): file.relative for file in archive_files(tmp_path, None)}
    closed = {file.relative for file in archive_files(tmp_path, None)} - set(newest.values())
    assert closed <= set(said)
