"""What the rails are told: counted from the ledger, unknown where nobody said."""

from __future__ import annotations

import msgspec

from actions.context import Site, rail_context, sizes_of
from actions.ledger import Ledger
from actions.rails import decide
from actions.service import outcome
from nodewarden.act_site import SiteReader
from telemetry.actions import (
    Command,
    Decision,
    Lease,
    OutcomeStatus,
    Preconditions,
    Rail,
    Used,
    Where,
)
from telemetry.records import Job, JobNode, NodeInfo
from telemetry.settings import ActSettings, Configuration
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import INVENTORY
from tests.acting import Site as Place
from tests.acting import incident

NOW_S = 1_700_000_000.0
SETTINGS = ActSettings()
SITE = Site(places={"node-a": Where("r1", "l1", "p1", "7"), "node-b": Where("r1", "l2", "p1")})


def decision(name: str, at: float = NOW_S, **changes: object) -> Decision:
    story = incident(name)
    verdict = msgspec.structs.replace(story.verdict, at=at)
    one = Decision(
        id=f"d-{name}", incident=name, rev=0, at=at, verdict=verdict, mode="auto",
        rails=[Rail("breaker", True, "calm")], state="approved", reason="", job="7",
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def command(name: str, at: float = NOW_S, *, dry_run: bool = True) -> Command:
    return Command(
        id=f"c-{name}", decision=f"d-{name}", action="isolate", targets=[f"node-{name}"],
        preconditions=Preconditions(), intent_at=at, expires_at=at + 60.0, dry_run=dry_run,
    )  # fmt: skip


def ledger(status: OutcomeStatus = "done", at: float = NOW_S) -> Ledger:
    made = Ledger()
    done = command("a", at)
    for record in (decision("a", at), done, outcome(done, status, "", at)):
        made.take(record)
    return made


def test_what_was_done_or_may_have_been_uses_its_budgets_by_hour_and_day() -> None:
    for status in ("done", "unknown"):
        used = rail_context(ledger(status), SITE, SETTINGS, NOW_S + 1.0).used
        scopes = ("cluster", "rack:r1", "leaf:l1", "pool:p1", "job:7")
        assert used == dict.fromkeys(scopes, Used(1, 1))
    assert rail_context(ledger(), SITE, SETTINGS, NOW_S + 4e3).used["cluster"] == Used(0, 1)
    assert rail_context(ledger(), SITE, SETTINGS, NOW_S + 9e4).used == {}


def test_what_failed_or_was_refused_uses_nothing() -> None:
    for status in ("failed", "refused"):
        assert rail_context(ledger(status), SITE, SETTINGS, NOW_S).used == {}


def test_what_is_approved_and_not_yet_done_counts_already() -> None:
    made = Ledger()
    made.take(decision("a"))
    assert rail_context(made, SITE, SETTINGS, NOW_S).used["cluster"] == Used(1, 1)
    made.take(decision("a", state="expired", revision=1))
    assert rail_context(made, SITE, SETTINGS, NOW_S).used == {}


def test_a_real_service_does_not_count_dry_runs() -> None:
    real = msgspec.structs.replace(SETTINGS, dry_run=False)
    assert rail_context(ledger(), SITE, real, NOW_S).used == {}


def test_what_nobody_measured_lately_is_unknown() -> None:
    site = Site(nodes=9, blind_nodes=1, measured_at=NOW_S, telemetry_at=NOW_S - 3.0)
    fresh = rail_context(Ledger(), site, SETTINGS, NOW_S + 10.0)
    assert (fresh.nodes, fresh.blind_nodes, fresh.telemetry_age_s) == (9, 1, 13.0)
    old = rail_context(Ledger(), site, SETTINGS, NOW_S + 500.0)
    assert (old.nodes, old.blind_nodes, old.listing_age_s) == (None, None, None)


def test_the_first_start_lasts_for_its_time_and_an_instance_after_it_is_none() -> None:
    made = Ledger()
    assert rail_context(made, SITE, SETTINGS, NOW_S).first_start
    made.take(Lease(at=NOW_S, instance="x", epoch=1))
    made.take(Lease(at=NOW_S + 3_000.0, instance="y", epoch=2))
    assert rail_context(made, SITE, SETTINGS, NOW_S + 3_599.0).first_start
    assert not rail_context(made, SITE, SETTINGS, NOW_S + 3_600.0).first_start


def test_the_breaker_stays_as_the_newest_decision_found_it() -> None:
    made = Ledger()
    made.take(decision("a", rails=[Rail("breaker", False, "open")]))
    assert rail_context(made, SITE, SETTINGS, NOW_S).breaker_open
    made.take(decision("b"))
    assert not rail_context(made, SITE, SETTINGS, NOW_S).breaker_open


def test_a_node_that_we_drained_is_nobody_elses() -> None:
    site = Site(drained_by={"n1": "nodewarden", "n2": "ops"})
    assert rail_context(Ledger(), site, SETTINGS, NOW_S).drained_by == {"n2": "ops"}


def test_a_rule_that_matches_every_node_gets_no_more_than_the_budget() -> None:
    """All in one batch, before any of them is done."""
    rails = msgspec.structs.replace(SETTINGS.rails, mode_default="auto", cluster_nodes_per_hour=3)
    settings = msgspec.structs.replace(SETTINGS, rails=rails, first_observe_s=0.0)
    place = Place(settings, decide)
    names = [f"i{number}" for number in range(100)]
    place.clock.set(NOW_S + 5.0)
    place.tell(*(incident(name) for name in names))
    place.facts = Site(
        nodes=100, blind_nodes=0, measured_at=NOW_S, telemetry_at=NOW_S, listing_at=NOW_S,
    )  # fmt: skip
    one = place.start()
    one.step(3)
    assert len(place.of(Decision)) == 100
    assert len(place.world.done) == 3


def test_the_site_is_read_from_the_inventory_and_a_silent_service_is_unknown() -> None:
    log = MemoryLog({INVENTORY: 1})
    nodes = [NodeInfo("n1", "idle", rack="r1", leaf="l1", pod="p"),
             NodeInfo("n2", "drained", "ops", protected=True), NodeInfo("n3", "down")]  # fmt: skip
    for info in nodes:
        log.append(INVENTORY, msgspec.json.encode(info), key=f"sched/{info.name}".encode())
    log.append(INVENTORY, msgspec.json.encode(Job("7", nodes=[JobNode("n1")])), key=b"job/7")
    log.append(INVENTORY, b"[", key=b"job/8")
    act = ActSettings(workers=("http://127.0.0.1:1/metrics",), inventory="")
    reader = SiteReader(Configuration(act=act), ManualClock(), log.reader)
    reader.refresh()
    site = reader.site
    assert site.places["n1"] == Where("r1", "l1", "p", "7")
    assert (site.drained_by, site.protected) == ({"n2": "ops", "n3": "somebody"}, ["n2"])
    assert (site.nodes, site.measured_at, site.listing_at) == (None, None, None)
    assert site.sizes == sizes_of(site.places)
    log.append(INVENTORY, None, key=b"sched/n2")
    reader.refresh()
    assert "n2" not in reader.site.places
