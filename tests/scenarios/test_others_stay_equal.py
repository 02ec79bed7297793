"""What happens to one node's telemetry moves nobody else's findings and delays."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from telemetry.findings import Finding
from telemetry.records import Arrived, Frame, Header, Rejected
from tests.folding import folded, numbered, simulated

ODD = "n040"  # the node that something happens to
SICK = "n003"  # the node whose fault must be found all the same
FROM_S = 300.0
TWO_DAYS_S = 172_800.0
# `at` is the arrival of the record that let the tick close: without the odd node's record it is
# the next one, some milliseconds later.
NEXT_RECORD_S = 1.0

BASE = simulated(64, 19.0, (f"ecn@{SICK}+240",))
START, END = BASE[0].arrival, BASE[-1].arrival

Item = tuple[float, Header]


def changed(change: Callable[[float, Header], list[Item]]) -> tuple[Arrived, ...]:
    """The log with every record of the odd node changed, in its new order of arrival."""
    items: list[Item] = []
    for arrived in BASE:
        record = arrived.record
        assert not isinstance(record, Rejected)
        mine = record.node == ODD
        items += change(arrived.arrival, record) if mine else [(arrived.arrival, record)]
    told = [item for item in items if item[0] <= END]
    return numbered(sorted(told, key=lambda item: item[0]))


def joins_with_the_last_phase(arrival: float, record: Header) -> list[Item]:
    """Nothing before a moment, then frames at the very end of every interval."""
    if arrival < START + FROM_S:
        return []
    if not isinstance(record, Frame):
        return [(arrival, record)]
    interval_s = {"gpu": 15.0, "nic": 60.0}[record.source]
    at = (record.at // interval_s + 1) * interval_s - 0.01
    moved = msgspec.structs.replace(record, at=at, sent_at=at)
    return [(at + 0.005, moved)]


def dies(arrival: float, record: Header) -> list[Item]:
    """Not a word after a moment; the job goes on."""
    return [(arrival, record)] if arrival < START + FROM_S else []


def comes_ten_minutes_late(arrival: float, record: Header) -> list[Item]:
    """Its frames wait on the node's disk."""
    if arrival < START + FROM_S or not isinstance(record, Frame):
        return [(arrival, record)]
    return [(arrival + 600.0, msgspec.structs.replace(record, spooled=True))]


def has_a_clock_two_days_ahead(arrival: float, record: Header) -> list[Item]:
    """Until somebody sets it right."""
    if arrival >= START + FROM_S or record.sent_at is None:
        return [(arrival, record)]
    at, sent_at = record.at + TWO_DAYS_S, record.sent_at + TWO_DAYS_S
    return [(arrival, msgspec.structs.replace(record, at=at, sent_at=sent_at))]


def of_others(findings: dict[str, Finding]) -> dict[tuple[str, str, str, float], float]:
    """(detector, node, metric, onset) -> when it was said, of every other node and the job."""
    return {
        (f.detector, f.node, f.metric, f.onset): f.at
        for f in findings.values()
        if f.node != ODD and f.state == "open" and f.detector != "should_be_zero"
    }


@pytest.mark.parametrize(
    "change",
    [
        joins_with_the_last_phase,
        dies,
        comes_ten_minutes_late,
        has_a_clock_two_days_ahead,
    ],
)
def test_the_others_findings_and_delays_stay_equal(
    change: Callable[[float, Header], list[Item]],
) -> None:
    _, undisturbed = folded(BASE)
    fold, disturbed = folded(changed(change))

    want, got = of_others(undisturbed.findings), of_others(disturbed.findings)
    assert any(node == SICK and detector == "zscore" for detector, node, _, _ in want)
    assert got.keys() == want.keys()
    for key, at in want.items():
        assert got[key] == pytest.approx(at, abs=NEXT_RECORD_S), key
    acted = [i.verdict for i in disturbed.sorted_incidents() if i.verdict.targets]
    assert [v.targets for v in acted] == [[SICK]]
    assert fold.counters.conserved()


def test_every_record_twice_changes_nothing_but_the_count_of_duplicates() -> None:
    once, said_once = folded(BASE)
    twice = numbered((a.arrival, record) for a in BASE for record in (a.record, a.record))

    fold, said_twice = folded(twice)

    assert said_twice.incidents == said_once.incidents
    assert said_twice.findings == said_once.findings
    assert fold.counters.duplicate == len(BASE)
    assert fold.counters.used == once.counters.used
    assert fold.counters.records == 2 * len(BASE)


def test_late_frames_are_counted_late_and_used_by_their_own_node() -> None:
    fold, _ = folded(changed(comes_ten_minutes_late))
    late = sum(
        1
        for a in BASE
        if isinstance(a.record, Frame)
        and a.record.node == ODD
        and START + FROM_S <= a.arrival <= END - 600.0
    )
    assert late > 0
    assert fold.counters.late == late


def test_a_corrected_clock_is_judged_normally_within_a_minute() -> None:
    """The sick node's own clock is two days ahead and set right before its fault."""

    def ahead(arrived: Arrived) -> Item:
        record = arrived.record
        assert not isinstance(record, Rejected)
        if record.node != SICK or record.sent_at is None or arrived.arrival > START + 180.0:
            return arrived.arrival, record
        at, sent_at = record.at + TWO_DAYS_S, record.sent_at + TWO_DAYS_S
        return arrived.arrival, msgspec.structs.replace(record, at=at, sent_at=sent_at)

    _, undisturbed = folded(BASE)
    fold, disturbed = folded(numbered(map(ahead, BASE)))

    assert fold.counters.skewed > 0
    want = [i for i in undisturbed.sorted_incidents() if i.verdict.targets == [SICK]]
    got = [i for i in disturbed.sorted_incidents() if i.verdict.targets == [SICK]]
    assert len(want) == len(got) == 1
    assert got[0].verdict.at - want[0].verdict.at <= 60.0
