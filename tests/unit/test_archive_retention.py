"""Retention removes what is old, and never what a replay could still start from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.archive_retention import expired
from streams.archive_store import KeptFile
from telemetry.archive import ArchiveFile
from telemetry.settings import ArchiveSettings
from telemetry.topics import FINDINGS, STATE, TELEMETRY

HOUR_S = 3_600.0
DAY_S = 86_400.0
SNAPSHOTS_S = 1_920.0


def hourly(topic: str, hours: int, size: int = 100, partition: int = 0) -> list[KeptFile]:
    """One file an hour; number n ended at hour n + 1."""
    return [
        KeptFile(ArchiveFile(topic, partition, n * 10), size, (n + 1) * HOUR_S)
        for n in range(hours)
    ]


def gone(files: list[KeptFile], now_s: float, **chosen: float) -> list[tuple[str, int]]:
    settings = ArchiveSettings(**chosen)  # type: ignore[arg-type]
    found = expired(files, settings, SNAPSHOTS_S, now_s)
    return [(file.topic, file.first_offset // 10) for file in found]


def test_without_limits_everything_is_kept() -> None:
    assert gone(hourly(TELEMETRY, 1_000), 10_000 * DAY_S) == []


def test_files_older_than_the_days_go_oldest_first() -> None:
    files = hourly(FINDINGS, 48)
    assert gone(files, 48 * HOUR_S, keep_days=1.0) == [(FINDINGS, n) for n in range(23)]


def test_the_newest_of_a_partition_stays_however_old() -> None:
    files = [*hourly(FINDINGS, 3), *hourly(FINDINGS, 1, partition=1)]
    assert gone(files, 1_000 * DAY_S, keep_days=1.0) == [(FINDINGS, 0), (FINDINGS, 1)]


def test_beyond_the_bytes_the_oldest_of_all_topics_go() -> None:
    files = [*hourly(FINDINGS, 4), *hourly(TELEMETRY, 4)]
    assert gone(files, 5 * HOUR_S, keep_bytes=500) == [
        (FINDINGS, 0), (TELEMETRY, 0), (FINDINGS, 1),
    ]  # fmt: skip


def test_snapshots_that_kept_telemetry_can_start_from_stay() -> None:
    """Telemetry from hour 23 on is kept: the snapshots of the hour before it are needed."""
    files = [*hourly(TELEMETRY, 48), *hourly(STATE, 48)]
    removed = gone(files, 48 * HOUR_S, keep_days=1.0)
    assert [n for topic, n in removed if topic == TELEMETRY] == list(range(23))
    assert [n for topic, n in removed if topic == STATE] == list(range(22))


def test_snapshots_from_before_a_long_silence_of_the_worker_stay() -> None:
    files = [*hourly(TELEMETRY, 48), *hourly(STATE, 5)]
    removed = gone(files, 48 * HOUR_S, keep_days=1.0)
    assert [n for topic, n in removed if topic == STATE] == [0, 1, 2, 3]


def test_snapshots_of_another_shard_are_not_its_business() -> None:
    files = [*hourly(TELEMETRY, 48), *hourly(STATE, 48, partition=1)]
    assert [topic for topic, _ in gone(files, 48 * HOUR_S, keep_days=1.0) if topic == STATE] == []


@given(
    telemetry=st.lists(st.integers(1, 5_000), min_size=1, max_size=20),
    state=st.lists(st.integers(1, 5_000), max_size=20),
    keep_bytes=st.integers(1, 1_000),
)
def test_whatever_goes_a_whole_snapshot_stands_before_what_is_kept(
    telemetry: list[int], state: list[int], keep_bytes: int
) -> None:
    """If there was one before: two files that end snapshots_s apart before the kept part."""
    files = [
        KeptFile(ArchiveFile(topic, 0, n), 100, float(sum(steps[: n + 1])))
        for topic, steps in ((TELEMETRY, telemetry), (STATE, state))
        for n in range(len(steps))
    ]
    removed = set(expired(files, ArchiveSettings(keep_bytes=keep_bytes), SNAPSHOTS_S, 1e6))
    kept = [found for found in files if found.file not in removed]
    assert {found.file.topic for found in kept} == {found.file.topic for found in files}
    ended = max(
        (at.modified_s for at in files if at.file in removed and at.file.topic == TELEMETRY),
        default=0.0,
    )

    def spans(found: list[KeptFile]) -> bool:
        ends = [at.modified_s for at in found if at.file.topic == STATE and at.modified_s <= ended]
        return bool(ends) and max(ends) - min(ends) >= SNAPSHOTS_S

    removed_state = [
        found for found in files if found.file in removed and found.file.topic == STATE
    ]
    if removed_state:
        before = max(at.modified_s for at in removed_state)
        after = [at for at in kept if at.file.topic == STATE and at.modified_s <= ended]
        assert after
        assert max(at.modified_s for at in after) - before >= SNAPSHOTS_S
        assert spans(files)
