"""The steps before and after a restart, out of a log: read back from its end, then on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nodewarden.act_reruns import RerunReader
from telemetry.actions import Update
from telemetry.archive_line import ArchiveLine
from telemetry.codec import encode
from telemetry.errors import SourceUnavailable
from telemetry.ports import LogReader
from telemetry.records import Beat, Steps
from telemetry.settings import VersionSettings
from telemetry.testing import ManualClock, MemoryLog, MemoryLogReader
from telemetry.topics import TELEMETRY

T = 1_700_000_000.0
SETTINGS = VersionSettings(steps_min=3, compare_s=600.0)


def update() -> Update:
    return Update(
        id="u1", job="7", versions={"code": "v2"}, before={}, urgent=True, state="running",
        asked_at=T, forced_at=T, at=T, by="otto", reason="", joined_at=T, ran_at=T + 1.0,
    )  # fmt: skip


class Slow(MemoryLogReader):
    """Gives one record a poll, and after `polls_max` of them nothing more."""

    def __init__(self, log: MemoryLog, polls_max: int) -> None:
        super().__init__(log, 1)
        self._left = polls_max

    def poll(self, timeout_s: float) -> Sequence[ArchiveLine]:
        self._left -= 1
        return super().poll(timeout_s) if self._left >= 0 else []


class Telemetry:
    def __init__(self) -> None:
        self.clock, self.log = ManualClock(T), MemoryLog({TELEMETRY: 2})
        self.away, self.polls_max = False, 1_000
        self.update = update()
        self.readers = RerunReader(self._reader, [0, 1], SETTINGS, self.clock)

    def _reader(self) -> LogReader:
        if self.away:
            raise SourceUnavailable("no broker")
        return Slow(self.log, self.polls_max)

    def say(self, at: float, first: int, count: int, *, job: str = "7", loss: float = 1.0,
            partition: int = 0) -> None:  # fmt: skip
        record = Steps(
            at=at, node="", source="training", started_at=1.0, seq=0, job=job, ranks=[],
            step=list(range(first, first + count)), loss=[loss] * count,
        )  # fmt: skip
        self.log.now_ms = int(at * 1e3)
        self.log.append(
            TELEMETRY, encode(record), partition=partition, headers=[("kind", b"steps")]
        )

    def looked(self) -> list[str] | None:
        self.readers.compared(self.update)
        self.readers.refresh()
        found = self.readers.compared(self.update)
        return None if found is None else [f"{one.quantity} {one.differs}" for one in found]


def test_steps_of_the_job_before_and_after_are_compared_once_the_new_run_has_passed() -> None:
    told = Telemetry()
    told.say(T - 100.0, 0, 20)
    told.say(T - 50.0, 0, 20, job="8", loss=9.0, partition=1)
    told.log.append(TELEMETRY, b"{torn", headers=[("kind", b"frame")])
    told.log.append(TELEMETRY, b"{torn", headers=[("kind", b"steps")])
    assert told.looked() is None
    told.say(T + 10.0, 10, 5)
    assert told.looked() is None
    told.say(T + 20.0, 15, 10, loss=1.5)
    assert ["loss True"] == told.looked()
    assert ["loss True"] == told.looked()  # and it stays so


def test_what_was_there_before_anybody_asked_is_read_back() -> None:
    told = Telemetry()
    told.say(T - 100.0, 0, 20)
    told.say(T + 10.0, 10, 15)
    assert ["loss False"] == told.looked()


def test_a_log_that_is_away_is_asked_again() -> None:
    told = Telemetry()
    told.say(T - 100.0, 0, 20)
    told.away = True
    assert told.looked() is None
    told.away = False
    told.say(T + 10.0, 10, 15)
    assert ["loss False"] == told.looked()


def test_a_job_that_was_submitted_again_makes_its_steps_under_its_new_id() -> None:
    told = Telemetry()
    told.update = msgspec.structs.replace(update(), next_job="8")
    told.say(T - 100.0, 0, 20)
    told.say(T - 100.0, 0, 20, job="", loss=9.0)
    assert told.looked() is None
    told.say(T + 10.0, 10, 20, job="8", loss=1.5)
    assert ["loss True"] == told.looked()


def test_what_a_slow_broker_has_not_given_yet_is_read_in_the_next_round() -> None:
    told = Telemetry()
    told.say(T - 100.0, 0, 20)
    assert told.looked() is None
    told.say(T + 10.0, 10, 5)
    told.say(T + 20.0, 15, 5, loss=1.5)
    told.polls_max = 1
    assert told.looked() is None
    assert ["loss True"] == told.looked()


def test_a_look_back_that_a_slow_broker_cut_short_begins_anew() -> None:
    told = Telemetry()
    for number in range(20):
        told.say(T - 100.0, number, 1)
    told.polls_max = 15
    assert told.looked() is None
    told.polls_max = 1_000
    told.say(T + 10.0, 17, 5)
    assert ["loss False"] == told.looked()


def test_in_the_end_what_was_re_run_by_then_is_all_there_is() -> None:
    told = Telemetry()
    told.say(T - 100.0, 0, 20)
    told.say(T + 10.0, 10, 5)
    assert told.looked() is None
    told.clock.advance(700.0)
    assert ["loss False"] == told.looked()
    nothing = Telemetry()
    nothing.say(T - 100.0, 0, 20)
    nothing.clock.advance(700.0)
    assert [] == nothing.looked()


def test_other_records_are_no_steps() -> None:
    told = Telemetry()
    beat = Beat(at=T, node="", source="act", started_at=1.0, seq=0)
    told.log.append(TELEMETRY, encode(beat))
    told.log.append(TELEMETRY, None)
    assert [] == told.looked()


def test_the_update_s_records_travel_as_they_are() -> None:
    one = update()
    assert one == msgspec.json.decode(msgspec.json.encode(one), type=Update)
