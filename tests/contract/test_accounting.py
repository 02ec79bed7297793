"""What accounting promises of any log: shares are shares, parts add up, nothing breaks it."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.accounting.account import Accountant
from actions.accounting.slots import SLOT_S, Slots
from actions.accounting.training import JobLife, Period
from telemetry.accounts import Account, Productivity
from telemetry.actions import ActionRecord
from telemetry.codec import decode as decode_record
from telemetry.codec import encode
from telemetry.findings import Incident
from telemetry.records import Allocation, Job, JobNode, Record, Rejected, StepKind, Steps
from tests.accounting_log import T0, actions, incidents, telemetry

KINDS: tuple[StepKind, ...] = get_args(StepKind)
SPAN_S = 3 * 3_600.0

took = st.one_of(st.none(), st.floats(0.0, 2_000.0), st.sampled_from([1e300, -1.0, 10.0]))
steps = st.builds(
    lambda at, number, kind, took_s, node, job: Steps(
        at=T0 + at, node=node, source="training", started_at=T0, seq=0, job=job, step_kind=kind,
        step=[number], step_time_s=[took_s],
    ),
    st.floats(0.0, SPAN_S), st.integers(-2, 60), st.sampled_from(KINDS), took,
    st.sampled_from(["", "n1", "n2"]), st.sampled_from(["a", "b"]),
)  # fmt: skip
jobs = st.builds(
    lambda name, attempt, start, end, nodes: Job(
        id=name, attempt=attempt, start=None if start is None else T0 + start,
        end=None if end is None else T0 + end, nodes=[JobNode(f"n{n}") for n in range(nodes)],
    ),
    st.sampled_from(["a", "b", "c"]), st.integers(-1, 4),
    st.none() | st.floats(-SPAN_S, SPAN_S), st.none() | st.floats(0.0, SPAN_S),
    st.integers(0, 3),
)  # fmt: skip
listings = st.builds(
    lambda at, listed, whole: Allocation(
        at=T0 + at, node="", source="inventory", started_at=T0, seq=0, jobs=listed,
        listing=f"l{at}" if whole else "", last=whole, count=1 if whole else 0,
    ),
    st.floats(0.0, SPAN_S), st.lists(jobs, max_size=3), st.booleans(),
)  # fmt: skip
logs = st.lists(st.one_of(steps, steps, steps, listings), max_size=30)


def account_of(records: list[Record], period: Period | None = None) -> Account:
    """In the order of arrival, which is that of time but for what is late."""
    accountant = Accountant(period)
    for record in records:
        accountant.telemetry(record, record.at)
    return accountant.account()


@settings(max_examples=60, deadline=None)
@given(logs, st.booleans())
def test_every_share_is_one_and_no_part_is_negative(log: list[Record], in_order: bool) -> None:
    account = account_of(sorted(log, key=lambda one: one.at) if in_order else log)
    for time in (account.fleet, *(one.time for one in account.jobs)):
        shares_are_shares(time)
    assert all(0.0 <= hour.ettr <= 1.0 for hour in account.hours)


def shares_are_shares(time: Productivity) -> None:
    hours = [hour.ettr for hour in (time.hour_last, time.hour_lowest) if hour is not None]
    for share in (*hours, *([] if time.ettr is None else [time.ettr])):
        assert 0.0 <= share <= 1.0
    if time.wall_s is None or time.productive_s is None:
        return
    assert time.productive_s <= time.wall_s + 1e-3
    parts = (time.productive_s, time.stopped_s, time.recomputed_s, time.other_s)
    assert all(part is not None and part >= 0.0 for part in parts)
    assert sum(part or 0.0 for part in parts) >= time.wall_s - 1e-3


@settings(max_examples=60, deadline=None)
@given(logs, st.floats(0.0, SPAN_S))
def test_two_periods_add_up_to_the_whole(log: list[Record], cut_s: float) -> None:
    log = sorted(log, key=lambda one: one.at)
    bounds = (T0 - SPAN_S, T0 + cut_s, T0 + 2.0 * SPAN_S)
    whole = account_of(log, (bounds[0], bounds[2])).fleet
    halves = [account_of(log, period).fleet for period in pairwise(bounds)]
    for name in ("wall_s", "productive_s", "stopped_s", "recomputed_s"):
        parts = [getattr(half, name) or 0.0 for half in halves]
        assert abs(sum(parts) - (getattr(whole, name) or 0.0)) < 1e-2, name
    assert sum(half.interruptions or 0 for half in halves) == (whole.interruptions or 0)


@settings(max_examples=60, deadline=None)
@given(logs)
def test_reading_a_log_twice_changes_nothing_but_what_was_late(log: list[Record]) -> None:
    """Each record delivered twice in a row, as an at-least-once log may."""
    log = sorted(log, key=lambda one: one.at)
    once = account_of(log)
    twice = account_of([one for record in log for one in (record, record)])
    assert once.fleet == twice.fleet


intervals = st.lists(st.tuples(st.floats(0.0, 5_000.0), st.floats(0.0, 5_000.0)), max_size=30)


@settings(deadline=None)
@given(intervals)
def test_slots_hold_all_that_was_added(gaps: list[tuple[float, float]]) -> None:
    slots, now_s = Slots(), T0
    for gap_s, took_s in gaps:
        slots.add(now_s + gap_s, now_s + gap_s + took_s)
        now_s += gap_s + took_s
    kept = dict(slots.items())
    assert abs(sum(kept.values()) - slots.total_s) < 1e-3
    assert all(0.0 <= seconds <= SLOT_S + 1e-6 for seconds in kept.values())
    assert list(kept) == sorted(kept)


def test_slots_stay_bounded_whatever_time_says() -> None:
    slots = Slots()
    slots.add(0.0, 4e9)
    slots.add(1e9, 1e9 + 10.0)  # long gone
    slots.add(4e12, 4e12 + 10.0)
    assert len(dict(slots.items())) <= 32 * 288
    assert slots.total_s == 4e9 + 20.0


Json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def mutated(value: bytes, data: st.DataObject) -> bytes:
    """One of its fields says something else."""
    fields = msgspec.json.decode(value)
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(Json)
    return msgspec.json.encode(fields)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_records_with_anything_in_a_field_break_nothing(data: st.DataObject) -> None:
    """Whatever the decoders let through: an account comes out, and its shares are shares."""
    accountant = Accountant()
    for record in telemetry()[::40]:
        found = decode_record(mutated(encode(record), data), "here")
        if not isinstance(found, Rejected):
            accountant.telemetry(found, record.at)
    for incident in incidents():
        try:
            accountant.incident(
                msgspec.json.decode(mutated(msgspec.json.encode(incident), data), type=Incident)
            )
        except msgspec.ValidationError:
            continue
    for action in actions():
        try:
            value = mutated(msgspec.json.encode(action), data)
            accountant.action(msgspec.json.decode(value, type=ActionRecord))
        except msgspec.ValidationError:
            continue
    account = accountant.account()
    shares_are_shares(account.fleet)
    msgspec.json.encode(account)


@settings(deadline=None)
@given(st.lists(st.floats(0.0, SPAN_S), max_size=20))
def test_a_life_without_trouble_is_all_productive(ends: list[float]) -> None:
    life = JobLife(T0)
    at = T0
    for number, took_s in enumerate([max(1.0, end) for end in ends], 1):
        at += took_s
        life.take(
            Steps(at=at, node="", source="t", started_at=T0, seq=0, job="a", step=[number],
                  step_time_s=[took_s]), at,
        )  # fmt: skip
    life.close()
    assert abs(life.productive.total_s - (at - T0)) < 1e-3
