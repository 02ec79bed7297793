"""The central collector's loop: what becomes of what its sources say."""

from __future__ import annotations

import io

import pytest

from collectors.agent.counts import Counts
from collectors.agent.notes import Notes
from collectors.agent.sink import LineSink
from collectors.central.background import begin
from collectors.central.loop import PUT_MAX, REJECTED_A_MINUTE, Central
from collectors.central.source import Said, Stream
from telemetry.codec import rejected
from telemetry.records import Beat
from telemetry.testing import ManualClock


class Scripted:
    """Says what it was given, one after the other."""

    def __init__(self, *said: Said, last: Said | None = None) -> None:
        self.said, self.last = list(said), last
        self.tickets: list[int] = []
        self.settled = 0
        self.is_closed = False

    def streams(self) -> dict[Stream, int]:
        return {("", "a", 5.0): 7}

    def poll(self) -> Said | None:
        return self.said.pop(0) if self.said else None

    def reached(self, ticket: int) -> None:
        self.tickets.append(ticket)

    def settle(self, safe: int) -> None:
        self.settled = safe

    def finish(self) -> Said | None:
        return self.last

    def close(self) -> None:
        self.is_closed = True


def beats(count: int) -> Said:
    beat = Beat(at=1_700_000_000.0, node="", source="a", started_at=5.0, seq=0)
    return Said([beat] * count)


def central(*sources: Scripted) -> tuple[Central, Counts, io.StringIO]:
    clock, counts, out = ManualClock(), Counts(), io.StringIO()
    notes = Notes(lambda _: None, clock)
    return Central(sources, LineSink(out, clock), counts, notes, clock), counts, out


def test_much_is_put_in_pieces_and_the_source_hears_of_the_last_ticket() -> None:
    source = Scripted(beats(PUT_MAX + 3), beats(0), beats(2))
    loop, _, out = central(source)
    assert loop.turn()
    assert ([], PUT_MAX) == (source.tickets, source.settled)
    assert loop.turn()
    assert [PUT_MAX + 3] == source.tickets
    loop.turn()
    loop.turn()
    assert not loop.turn()
    assert [PUT_MAX + 3, PUT_MAX + 3, PUT_MAX + 5] == source.tickets
    assert '"seq":7' in out.getvalue().splitlines()[0]  # its stream goes on


def test_at_the_end_everything_that_was_said_is_put_and_sources_are_closed() -> None:
    source = Scripted(beats(PUT_MAX + 3), last=beats(2))
    loop, _, out = central(source)
    turns = iter([False, True])
    loop.run(lambda: next(turns))
    assert PUT_MAX + 5 == len(out.getvalue().splitlines()) == source.settled
    assert source.is_closed


def test_a_source_that_is_all_junk_does_not_fill_the_topic_of_the_rejected() -> None:
    junk = Said(rejected=[rejected("junk", b"x", "here")] * (REJECTED_A_MINUTE + 40))
    loop, counts, out = central(Scripted(junk))
    loop.turn()
    assert REJECTED_A_MINUTE == len(out.getvalue().splitlines())
    assert 40 == counts.totals["rejected_left_out", ""]


def test_work_in_the_background_raises_where_its_result_is_asked_for() -> None:
    assert 3 == begin("test", lambda: 3).result(5.0)
    with pytest.raises(ZeroDivisionError):
        begin("test", lambda: 1 // 0).result(5.0)
