"""What the telemetry says of jobs that are to be restarted: read only while somebody asks."""

from __future__ import annotations

from actions.ports import JobFacts
from nodewarden.act_jobs import ASKED_S, PENDING_MAX_S, STEP_MIN_S, JobsReader
from telemetry.codec import encode
from telemetry.errors import SourceUnavailable
from telemetry.ports import LogReader
from telemetry.records import Beat, StepKind, Steps
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import TELEMETRY

T = 1_700_000_000.0


class Telemetry:
    def __init__(self) -> None:
        self.clock, self.log = ManualClock(T), MemoryLog({TELEMETRY: 2})
        self.away, self.made = False, 0
        self.jobs = JobsReader(
            self._reader, [0, 1], lambda _job: JobFacts(replacements=3), self.clock
        )

    def _reader(self) -> LogReader:
        self.made += 1
        if self.away:
            raise SourceUnavailable("no broker")
        return self.log.reader()

    def say(self, kind: StepKind = "train", *, took_s: float | None = 2.0, job: str = "7") -> None:
        record = Steps(
            at=self.clock.time_s(), node="", source="training", started_at=1.0, seq=0, job=job,
            ranks=[], step=[1], step_kind=kind, step_time_s=[] if took_s is None else [took_s],
        )  # fmt: skip
        headers = [("kind", b"steps")]
        self.log.append(TELEMETRY, encode(record), partition=1, headers=headers)

    def known(self) -> JobFacts:
        self.jobs.facts("7")
        self.jobs.refresh()
        return self.jobs.facts("7")


def test_a_job_of_which_no_step_was_read_is_unknown() -> None:
    told = Telemetry()
    told.say(job="8")
    assert told.known() == JobFacts(replacements=3)


def test_until_it_was_read_once_more_is_known_in_a_moment_and_never_for_long() -> None:
    told = Telemetry()
    assert told.jobs.facts("7").pending
    told.clock.advance(PENDING_MAX_S)
    assert not told.jobs.facts("7").pending
    assert Telemetry().known().pending is False


def test_a_job_that_ends_steps_progresses_and_one_that_ended_none_lately_does_not() -> None:
    told = Telemetry()
    told.say()
    assert told.known().progresses is True
    told.clock.advance(STEP_MIN_S + 1.0)
    assert told.known().progresses is False
    told.say()
    assert told.known().progresses is True


def test_a_checkpoint_is_whole_when_its_time_is_said_or_the_next_step_ends() -> None:
    told = Telemetry()
    told.say("checkpoint", took_s=None)
    assert told.known().checkpoint_at is None
    told.clock.advance(20.0)
    told.say()
    assert told.known().checkpoint_at == T + 20.0
    told.clock.advance(20.0)
    told.say("checkpoint", took_s=5.0)
    assert told.known().checkpoint_at == T + 40.0


def test_nothing_is_read_while_nobody_asks() -> None:
    told = Telemetry()
    told.say()
    told.jobs.refresh()
    assert told.made == 0
    told.known()
    assert told.made == 1
    told.clock.advance(ASKED_S + 1.0)
    told.jobs.refresh()
    told.known()
    assert told.made == 2


def test_a_broker_that_is_away_leaves_what_was_known_and_is_asked_again() -> None:
    told = Telemetry()
    told.say()
    assert told.known().progresses is True
    told.log.refuse(1)
    assert told.known().progresses is True
    told.away = True
    assert told.known().progresses is True
    told.away = False
    told.say("checkpoint")
    assert told.known().checkpoint_at == T


def test_other_records_are_passed() -> None:
    told = Telemetry()
    beat = Beat(at=T, node="n1", source="agent", started_at=1.0, seq=0)
    told.log.append(TELEMETRY, encode(beat), partition=0, headers=[("kind", b"beat")])
    told.log.append(TELEMETRY, b"[[", partition=0, headers=[("kind", b"steps")])
    assert told.known().progresses is None
