"""A drain of ours that somebody took off in the scheduler is a person's word, and wins."""

from __future__ import annotations

import msgspec
import pytest

from actions.ledger import Ledger
from actions.undone import EVERY_S, UndoneWatch, held, readmitted, warning
from telemetry.actions import Command, Lease, Outcome, Preconditions, Request
from telemetry.testing import ManualClock
from tests.acting import SETTINGS, Site, World, incident
from tests.slurm_fake import FakeSlurm, command, executor

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
    return UndoneWatch(scheduler, ledger, clock), scheduler, clock


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
    assert {} == held(told(msgspec.structs.replace(first, **changes), second))
    assert {} == held(told(first))
    failed = msgspec.structs.replace(second, status="unknown")
    assert {} == held(told(first, failed))


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
