"""Memory stays bounded whatever the log holds, and what was left out is said."""

from __future__ import annotations

import msgspec
import pytest

from actions.accounting.account import Accountant
from actions.accounting.deeds import COMMANDS_MAX, DECISIONS_MAX, PER_DECISION_MAX, Deeds
from actions.accounting.jobs import JOBS_MAX, LISTED_MAX, Jobs
from actions.accounting.lemons import NODES_MAX, Xids
from actions.accounting.reporters import REPORTERS_MAX, Reporters
from actions.accounting.slots import SLOT_S, Slots
from actions.accounting.stories import STORIES_MAX
from actions.accounting.training import INTERRUPTIONS_MAX, JobLife
from telemetry.actions import Command, Lease, LedgerPart, Outcome, Preconditions, Request
from telemetry.records import Allocation, Event, Job
from tests.accounting_log import T0, decision, incidents, job, listing, steps


def command(number: int, decision: str) -> Command:
    return Command(
        id=f"c{number}", decision=decision, action="isolate", targets=["n"],
        preconditions=Preconditions(), intent_at=T0, expires_at=T0, dry_run=False,
    )  # fmt: skip


def test_the_oldest_decisions_go_with_their_commands() -> None:
    deeds, made = Deeds(), decision("approved", 1, 0, "all rails let pass")
    for number in range(DECISIONS_MAX + 10):
        deeds.take(msgspec.structs.replace(made, id=f"d{number}", incident=f"i{number}"))
        if number < 20:
            deeds.take(command(number, f"d{number}"))
    assert len(deeds.courses) == len(deeds.of_incident) == DECISIONS_MAX
    assert len(deeds.by_decision) == 10
    assert deeds.dropped == {"decisions": 10}
    deeds.take(Outcome(command="c0", at=T0, status="done", reason=""))  # of one that is gone
    assert deeds.deeds_of("d0") == []


def test_a_decision_keeps_so_many_commands_and_all_decisions_so_many() -> None:
    deeds = Deeds()
    for number in range(PER_DECISION_MAX + 5):
        deeds.take(command(number, "one"))
        deeds.take(command(number, "one"))  # said again
    assert len(deeds.deeds_of("one")) == PER_DECISION_MAX
    for number in range(COMMANDS_MAX):
        deeds.take(command(1_000 + number, f"d{number}"))
    assert sum(1 for _ in deeds.all_deeds()) <= COMMANDS_MAX
    assert deeds.deeds_of("one") == []


def test_what_a_ledger_repeats_counts_as_a_record_and_says_nothing_new() -> None:
    accountant = Accountant()
    accountant.action(Lease(at=T0, instance="a", epoch=1))
    made = decision("approved", 1, 0, "why")
    accountant.action(LedgerPart(id="l", at=T0, part=0, parts=1, decisions=[made]))
    account = accountant.account()
    assert account.has_actions
    assert account.decided == []


def test_too_many_jobs_are_said() -> None:
    accountant = Accountant()
    for number in range(JOBS_MAX + 3):
        accountant.telemetry(steps(f"j{number}", 1, number, 1), T0 + number)
    account = accountant.account()
    assert len(account.jobs) == JOBS_MAX
    assert "3 jobs beyond the limit are not accounted for" in account.notes


def test_listed_jobs_and_listings_are_bounded() -> None:
    jobs = Jobs()
    for number in range(0, LISTED_MAX + 1_000, 1_000):
        some = [Job(id=f"j{one}") for one in range(number, number + 1_000)]
        jobs.allocation(msgspec.structs.replace(listing(0, *some), listing=""), T0)
    jobs.allocation(listing(9, Job(id="j0")), T0)
    assert len(jobs.listed) == LISTED_MAX
    endless = msgspec.structs.replace(listing(0, Job(id="j")), listing="x", last=False)
    for _ in range(10_010):
        jobs.allocation(endless, T0)
    jobs.allocation(msgspec.structs.replace(endless, last=True, count=10_011), T0 + 1)
    assert (
        jobs.listed["j2000"].end is not None
    )  # of a listing before; the endless one ended nothing
    assert jobs.listed["j"].end is None


def test_a_part_of_a_listing_ends_no_job() -> None:
    jobs = Jobs()
    jobs.allocation(listing(0, job("a", 1, 0), job("b", 1, 0)), T0)
    part = Allocation(at=T0, node="", source="inventory", started_at=T0, seq=1,
                      jobs=[Job(id="a")], listing="l2", last=True, count=2)  # fmt: skip
    jobs.allocation(part, T0 + 10)
    assert jobs.listed["b"].end is None


def test_a_job_with_moving_nodes_counts_those_that_it_holds_at_once() -> None:
    jobs = Jobs()
    moved = job("a", 3, 0)
    first, second, third = moved.nodes
    nodes = [
        msgspec.structs.replace(first, until=T0 + 50),
        msgspec.structs.replace(second, since=T0 + 50), third,
    ]  # fmt: skip
    jobs.allocation(listing(60, msgspec.structs.replace(moved, nodes=nodes)), T0 + 60)
    assert jobs.listed["a"].nodes == 2


def test_too_many_incidents_are_said() -> None:
    accountant, one = Accountant(), incidents()[0]
    for number in range(STORIES_MAX + 2):
        accountant.incident(msgspec.structs.replace(one, id=f"i{number}"))
    account = accountant.account()
    assert "2 of the oldest incidents were too many to keep" in account.notes
    assert f"{STORIES_MAX - 5_000} of the oldest incidents are counted, not listed" in account.notes
    assert len(account.incidents) == 5_000


def test_requests_and_interruptions_are_bounded() -> None:
    deeds = Deeds()
    for number in range(20_001):
        deeds.take(Request(id=f"q{number}", at=T0, by="", role=None, verb="pause", target="",
                           accepted=True, reason="taken"))  # fmt: skip
    assert deeds.dropped == {"requests": 1}
    life = JobLife(T0)
    for number in range(INTERRUPTIONS_MAX + 5):
        at = T0 + 100.0 * number
        life.take(steps("j", 5, 100.0 * number, 1), at)
        life.take(steps("j", 3, 100.0 * number + 50.0, 1), at + 50.0)
    assert len(life.interruptions) == INTERRUPTIONS_MAX


def test_reporters_are_bounded() -> None:
    reporters = Reporters()
    for number in range(REPORTERS_MAX + 10):
        one = msgspec.structs.replace(steps("j", 1, 0, 1), node=f"n{number}")
        reporters.hear(one, 1, T0, 1.0)
    # The first ones are strangers again, and prove nothing.
    one = msgspec.structs.replace(steps("j", 0, 9, 1), node="n0")
    assert not reporters.hear(one, 0, T0 + 9, 1.0)


def xid(node: str, number: int, at_s: float = 0.0, boot: str = "b") -> Event:
    return Event(at=T0 + at_s, node=node, source="kernel", started_at=T0, seq=number, type="xid",
                 text="", severity="critical", boot_id=boot, kmsg_seq=number)  # fmt: skip


def test_xids_are_counted_once_a_boot_and_within_days() -> None:
    xids = Xids()
    for event in (xid("n", 1), xid("n", 1), xid("n", 2), xid("n", 1, boot="c")):
        xids.take(event, T0)
    xids.take(xid("n", 3), T0 - 50 * 86_400.0)
    xids.take(msgspec.structs.replace(xid("n", 4), type="oom"), T0)
    assert xids.count("n", T0 - 86_400.0, T0) == 3
    assert xids.count("other", T0 - 86_400.0, T0) == 0


def test_xids_are_bounded_in_nodes_and_days() -> None:
    xids = Xids()
    for day in range(100):
        xids.take(xid("n", day), T0 + day * 86_400.0)
    assert xids.count("n", 0.0, T0 + 200 * 86_400.0) == 64
    for number in range(NODES_MAX):
        xids.take(xid(f"n{number}", number, boot="d"), T0)
    assert xids.count("n", 0.0, T0 + 200 * 86_400.0) == 0


def test_slots_take_what_lies_before_the_first() -> None:
    slots = Slots()
    slots.add(T0 + 3 * SLOT_S, T0 + 3 * SLOT_S + 10.0)
    slots.add(T0, T0 + 20.0)
    assert [seconds for _, seconds in slots.items()] == [20.0, 0.0, 0.0, 10.0]


@pytest.mark.parametrize("number", [2**62, 2**63 - 1])
def test_a_step_number_beyond_reason_costs_nothing(number: int) -> None:
    life = JobLife(T0)
    life.take(steps("j", 1, 10, 10), T0 + 10)
    life.take(steps("j", number, 20, 1e-300), T0 + 20)
    life.close()
    assert 0.0 <= life.productive.total_s <= 20.0
