"""A drain of ours that somebody took off in the scheduler is a person's word, and wins."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

import msgspec
import pytest

from actions.ledger import Ledger
from actions.ports import LooksAtOnce
from actions.undone import EVERY_S, UndoneWatch, drains, held, readmitted, warning
from nodewarden.act_looks import Lookout
from telemetry.actions import Command, Lease, Outcome, OutcomeStatus, Preconditions, Request
from telemetry.errors import SourceUnavailable
from telemetry.testing import ManualClock
from tests.acting import SETTINGS, Site, World, incident
from tests.recovering import TARGET, Cluster, broken
from tests.slurm_fake import FakeSlurm, command, executor

DAY_S = 86_400.0
DRAINED = {"n1": "IDLE+DRAIN"}


class Scheduler(World):
    """Says how nodes are and who drained them."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.seen = Preconditions()
        self.looks = 0

    def observe(self, targets: object, job: str = "") -> Preconditions:
        self.looks += 1
        super().observe([], job)
        return self.seen


def told(*records: Command | Outcome | Request) -> Ledger:
    ledger = Ledger()
    for one in (Lease(at=1.0, instance="a", epoch=1), *records):
        ledger.take(one)
    return ledger


def did(action: str, at_s: float, **changes: object) -> list[Command | Outcome]:
    one = command(
        action, "n1", id=f"{action}{at_s}", decision=f"d{at_s}", intent_at=at_s, **changes
    )
    return [one, Outcome(command=one.id, at=at_s, status="done", reason="it is so")]


def watch(ledger: Ledger) -> tuple[UndoneWatch, Scheduler, ManualClock]:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    return UndoneWatch(LooksAtOnce(scheduler), ledger, clock), scheduler, clock


def test_a_node_that_somebody_gave_back_is_released_and_left_alone() -> None:
    ledger = told(*did("isolate", 10.0))
    one, scheduler, clock = watch(ledger)
    scheduler.seen = Preconditions(states={"n1": "IDLE"}, owners={"n1": ""})
    (request,) = one.news({})
    assert ("release", "n1", True) == (request.verb, request.target, request.accepted)
    assert (1.0, 0) == request.control
    ledger.take(request)
    assert clock.time_s() == ledger.released["n1"]
    clock.advance(EVERY_S)
    assert [] == one.news({})


@pytest.mark.parametrize(
    "seen",
    [Preconditions(states={"n1": "IDLE+DRAIN"}, owners={"n1": "nodewarden"}),
     Preconditions(states={"n1": "IDLE+DRAIN"}, owners={"n1": "otto"}),
     Preconditions(states={"n1": ""}, owners={"n1": ""}),
     Preconditions(states={"n1": "IDLE"}), Preconditions()],
)  # fmt: skip
def test_what_is_still_out_or_not_seen_is_no_release(seen: Preconditions) -> None:
    one, scheduler, _ = watch(told(*did("isolate", 10.0)))
    scheduler.seen = seen
    assert [] == one.news({})


def test_what_we_gave_back_ourselves_is_nobody_elses_word() -> None:
    assert {} == held(told(*did("isolate", 10.0), *did("release", 20.0)))
    assert {} == held(told(*did("isolate", 10.0), *did("restart", 20.0, step="undrain")))
    assert ["n1"] == list(held(told(*did("isolate", 5.0), *did("release", 7.0),
                                    *did("isolate", 9.0))))  # fmt: skip


@pytest.mark.parametrize("changes", [{"dry_run": True}, {"step": "stop"}, {"action": "restart"}])
def test_only_a_drain_that_was_made_can_be_undone(changes: dict[str, object]) -> None:
    first, second = did("isolate", 10.0)
    assert {} == drains(told(msgspec.structs.replace(first, **changes), second))
    assert {} == drains(told(first))
    assert isinstance(second, Outcome)
    refused = msgspec.structs.replace(second, status="refused")
    assert {} == drains(told(first, refused))


def unsure(status: OutcomeStatus, *nodes: str) -> Ledger:
    """A drain of which nobody knows what it did to each."""
    one = command("isolate", *nodes, intent_at=10.0)
    return told(one, Outcome(command=one.id, at=10.0, status=status, reason="nobody knows"))


OUT = Preconditions(states={"n1": "IDLE+DRAIN"}, owners={"n1": "nodewarden"})
IN = Preconditions(states={"n1": "IDLE"}, owners={"n1": ""})


@pytest.mark.parametrize(
    "ledger", [unsure("unknown", "n1"), unsure("failed", "n1", "n2"), unsure("refused", "n1", "n2")]
)
def test_a_drain_of_an_unknown_outcome_is_undone_only_where_it_was_seen(ledger: Ledger) -> None:
    assert {} == held(ledger)
    one, scheduler, clock = watch(ledger)
    scheduler.seen = IN  # the call may still be on its way
    assert [] == one.news({})
    assert set() == one.in_force()
    clock.advance(EVERY_S)
    scheduler.seen = OUT
    assert [] == one.news({})
    assert {"d1"} == one.in_force()
    clock.advance(EVERY_S)
    scheduler.seen = IN
    assert ["n1"] == [request.target for request in one.news({})]


def test_a_drain_of_a_recovery_that_went_to_a_person_is_watched_too() -> None:
    site = Cluster()
    site.world.behaves["drain"] = ["lost"]
    site.world.readable = False
    site.tell(broken())
    one = site.start()
    site.run_for(60.0)
    assert ["escalated"] == [recovery.state for recovery in site.recoveries()]
    assert "nodewarden" == site.world.owners[TARGET]
    site.world.owners[TARGET] = ""
    one.step()
    site.run_for(30.0)
    assert [TARGET] == [request.target for request in site.of(Request)]  # type: ignore[union-attr]


class Slow:
    """A `Looks` that takes its time."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.found: Preconditions | None = None

    def ask(self, nodes: Sequence[str]) -> None:
        self.asked.append(list(nodes))

    def answer(self) -> Preconditions | None:
        found, self.found = self.found, None
        return found


def test_what_was_seen_before_the_drain_is_no_word_on_it() -> None:
    ledger, looks, clock = told(*did("isolate", 10.0)), Slow(), ManualClock()
    one = UndoneWatch(looks, ledger, clock)
    assert [] == one.news({})
    for record in (*did("release", 11.0), *did("isolate", 12.0)):
        ledger.take(record)
    looks.found = IN
    assert [] == one.news({})
    clock.advance(EVERY_S)
    assert [] == one.news({})
    looks.found = IN
    assert ["n1"] == [request.target for request in one.news({})]


def test_one_look_at_a_time_however_long_it_takes() -> None:
    looks, clock = Slow(), ManualClock()
    one = UndoneWatch(looks, told(*did("isolate", 10.0)), clock)
    for _ in range(10):
        assert [] == one.news({})
        clock.advance(EVERY_S)
    assert [["n1"]] == looks.asked


def test_a_scheduler_that_hangs_holds_up_no_decision() -> None:
    hangs, stop = threading.Event(), threading.Event()
    waits = threading.Event()

    def observe(nodes: Sequence[str]) -> Preconditions:
        waits.set()
        assert hangs.wait(30.0)
        return Preconditions(states={"node-a": "IDLE"}, owners={"node-a": ""})

    looks = Lookout(observe)
    thread = threading.Thread(target=looks.run, args=(stop,))
    thread.start()
    try:
        site = Site(msgspec.structs.replace(SETTINGS, dry_run=False))
        site.looks = looks
        site.tell(incident("a"))
        running = site.start()
        for _ in range(3):
            running.step()
        site.clock.advance(EVERY_S)
        running.step()
        assert waits.wait(30.0)
        site.tell(incident("b"))
        running.step(3)  # it is still looking
        assert 2 == len(site.of(Outcome))
        assert [] == site.of(Request)
        hangs.set()
        until_s = time.monotonic() + 30.0
        while not site.of(Request):
            assert time.monotonic() < until_s
            running.step()
            time.sleep(0.01)
    finally:
        hangs.set()
        stop.set()
        thread.join(30.0)
    assert ["node-a"] == [one.target for one in site.of(Request)]  # type: ignore[union-attr]


def test_a_look_that_fails_is_told_once_and_the_next_one_is_made() -> None:
    stop, fails = threading.Event(), [True, False]

    def observe(nodes: Sequence[str]) -> Preconditions:
        if fails.pop(0):
            raise SourceUnavailable("hangs")
        return IN

    looks = Lookout(observe)
    thread = threading.Thread(target=looks.run, args=(stop,))
    thread.start()
    try:
        for _ in range(2):
            looks.ask(["n1"])
            until_s, found = time.monotonic() + 30.0, "nothing"
            while found == "nothing":
                assert time.monotonic() < until_s
                with contextlib.suppress(SourceUnavailable):
                    found = "nothing" if (seen := looks.answer()) is None else str(seen.states)
                    continue
                found = "no answer"
            assert found == ("no answer" if len(fails) == 1 else "{'n1': 'IDLE'}")
    finally:
        stop.set()
        thread.join(30.0)


def test_as_long_as_a_node_is_out_the_drain_is_not_forgotten() -> None:
    site = Site(msgspec.structs.replace(SETTINGS, dry_run=False))
    slurm = FakeSlurm("node-a")
    site.world = executor(slurm)  # type: ignore[assignment]
    site.tell(incident("a"))
    running = site.start()
    running.step(3)
    assert 1 == len(slurm.calls)
    site.tell(incident("a", rev=1, closed_at=site.clock.time_s()))
    for _ in range(10):
        site.clock.advance(DAY_S)
        running.step(2)
    slurm.set("node-a", "IDLE")
    site.clock.advance(EVERY_S)
    running.step(2)
    (request,) = site.of(Request)
    assert isinstance(request, Request)
    assert "node-a" == request.target
    for _ in range(3):
        site.clock.advance(DAY_S)
        running.step(2)
    assert {} == running.ledger.decisions


def test_a_job_may_have_again_what_was_given_back_and_nothing_that_is_out() -> None:
    restart = did("isolate_and_restart", 11.0, step="restart", job="7", exclude=["n1", "n2"])
    drain = did("isolate", 10.0)
    assert ["n2"] == readmitted(told(*drain, *restart), "7", ["n9"])
    assert ["n1"] == readmitted(told(*drain, *restart, *did("release", 12.0)), "7", ["n2"])
    assert [] == readmitted(told(*drain, *restart), "8", [])
    assert [] == readmitted(told(*drain, *restart), "", [])


def test_a_scheduler_that_does_not_answer_is_asked_less_often() -> None:
    one, scheduler, clock = watch(told(*did("isolate", 10.0)))
    scheduler.away = True
    for _ in range(100):
        assert [] == one.news({})
        clock.advance(EVERY_S / 2.0)
    assert scheduler.looks <= 7


def test_nobody_is_asked_while_nothing_of_ours_is_out() -> None:
    one, scheduler, _ = watch(told())
    assert [] == one.news({})
    assert 0 == scheduler.looks


def test_i9_a_release_warns_of_open_incidents() -> None:
    broken, other = incident("a"), incident("b")
    assert "node-a still has open incidents: a" == warning("node-a", [broken, other])
    closed = msgspec.structs.replace(broken, closed_at=1.0)
    assert "" == warning("node-a", [closed, other])
    one, scheduler, _ = watch(told(*did("isolate", 10.0)))
    scheduler.seen = Preconditions(states={"n1": "IDLE"}, owners={"n1": ""})
    about = msgspec.structs.replace(
        broken, verdict=msgspec.structs.replace(broken.verdict, targets=["n1"])
    )
    assert "n1 still has open incidents: a" == one.news({"a": about})[0].note


def test_i1_the_service_writes_it_down_and_tells_the_engine() -> None:
    site = Site(msgspec.structs.replace(SETTINGS, dry_run=False))
    slurm = FakeSlurm("node-a")
    site.world = executor(slurm)  # type: ignore[assignment]
    site.tell(incident("a"))
    running = site.start()
    for _ in range(3):
        running.step()
    assert 1 == len(slurm.calls)
    slurm.set("node-a", "IDLE")
    site.clock.advance(EVERY_S)
    running.step()
    running.step()
    (request,) = site.of(Request)
    assert isinstance(request, Request)
    assert ("release", "node-a", "scheduler") == (request.verb, request.target, request.by)
    assert ["released"] == [one.action for one in site.controls]
    assert 1 == len(slurm.calls)
