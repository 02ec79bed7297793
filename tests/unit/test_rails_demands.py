"""What users of the peers asked for, where it is a matter of rails: by its label."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.budgets import breaker_open, charges
from actions.rails import decide, recheck, tells
from actions.wanted import Wanted
from telemetry.actions import Decision, RailContext, Used, Where, decision_id
from telemetry.findings import Incident, Suspect, Verdict
from telemetry.settings import RailSettings

HOUR = 3_600.0
NOW = 1_000_000.0
AUTO = RailSettings(mode_default="auto")
FINE = RailContext(nodes=500, blind_nodes=0, telemetry_age_s=1.0, listing_age_s=1.0)


def story(node: str, at: float = NOW, job: str = "", name: str = "") -> tuple[Verdict, Incident]:
    action = "isolate_and_restart" if job else "isolate"
    verdict = Verdict(action, "Because of 1.", [node], "now", at, "certain machine fault")  # type: ignore[arg-type]
    incident = Incident(
        id=name or f"i-{node}", rev=0, scope=f"node:{node}", opened_at=at, closed_at=None, job=job,
        cause="hardware", kind="gpu_lost", severity="critical", confidence=1.0,
        suspects=[Suspect(node, "", 1.0)], evidence=[], verdict=verdict, verdicts=[verdict],
        certain=True,
    )  # fmt: skip
    return verdict, incident


class Service:
    """Decides one after the other, and counts as the ledger does: what was approved is used."""

    def __init__(self, places: dict[str, Where], rules: RailSettings) -> None:
        self.places, self.rules = places, rules
        self.spent: list[tuple[float, str, int]] = []
        self.recent: dict[str, float] = {}
        self.open = False
        self.decisions: list[Decision] = []

    def used(self, now: float) -> dict[str, Used]:
        scopes = {scope for _, scope, _ in self.spent}
        return {
            scope: Used(
                sum(n for at, s, n in self.spent if s == scope and now - HOUR < at <= now),
                sum(n for at, s, n in self.spent if s == scope and now - 24 * HOUR < at <= now),
            )
            for scope in scopes
        }

    def context(self, now: float) -> RailContext:
        sizes = Counter(f"rack:{where.rack}" for where in self.places.values())
        since = now - self.rules.breaker_window_s
        return msgspec.structs.replace(
            FINE, used=self.used(now), places=self.places,
            recent={node: at for node, at in self.recent.items() if at > since},
            breaker_open=self.open, sizes=dict(sizes), nodes=len(self.places),
        )  # fmt: skip

    def take(self, verdict: Verdict, incident: Incident, now: float) -> Decision:
        context = self.context(now)
        made = decide(verdict, incident, context, self.rules, now)
        self.recent |= dict.fromkeys(verdict.targets, now)
        self.open, _ = breaker_open(self.context(now), self.rules)
        if made.state == "approved":
            for scope, count in charges(verdict, incident.job, context).items():
                self.spent.append((now, scope, count))
        self.decisions.append(made)
        return made


def test_h1_an_isolation_of_three_days_ago_is_not_carried_out() -> None:
    """Its incident closed long ago; and where it is still open, the verdict is too old."""
    verdict, incident = story("n1", NOW - 72 * HOUR)
    closed = msgspec.structs.replace(incident, closed_at=NOW - 71 * HOUR)
    old = decide(verdict, incident, FINE, AUTO, NOW)
    over = decide(verdict, closed, FINE, AUTO, NOW)
    approved = decide(verdict, incident, FINE, AUTO, verdict.at)
    late = msgspec.structs.replace(approved, expires_at=approved.at + 120.0)

    assert ["refused", "refused", "approved"] == [old.state, over.state, approved.state]
    assert "fresh verdict: 259200 s old, at most 3600 s" in old.reason
    assert "the incident was closed 255600 s ago" in over.reason
    assert "expired" == recheck(late, incident, FINE, AUTO, NOW).state
    assert "refused" == recheck(approved, closed, FINE, AUTO, verdict.at + 1.0).state


def test_h5_the_same_verdict_twice_is_one_decision() -> None:
    verdict, incident = story("n1")
    first = decide(verdict, incident, FINE, AUTO, NOW)
    again = decide(verdict, msgspec.structs.replace(incident, rev=9), FINE, AUTO, NOW + 60.0)

    assert decision_id("i-n1", verdict) == first.id == again.id


@pytest.mark.parametrize("owner", ["admin", "node-healthcheck-operator", "nvsentinel"])
def test_h7_h16_what_someone_else_drained_or_leased_is_left_alone(owner: str) -> None:
    known = msgspec.structs.replace(FINE, drained_by={"n1": owner})
    made = decide(*story("n1"), known, AUTO, NOW)

    assert "refused" == made.state
    assert f"n1 by {owner}" in made.reason


def test_h9_the_first_start_looks_on_even_where_everything_is_automatic() -> None:
    known = msgspec.structs.replace(FINE, first_start=True)
    made = decide(*story("n1"), known, AUTO, NOW)

    assert ("observe", "noted") == (made.mode, made.state)
    assert "the ledger is empty" in made.reason


@pytest.mark.parametrize("nodes", [40, 1_000])
def test_h9_a_rule_that_matches_every_node_isolates_at_most_the_budget_and_pages(
    nodes: int,
) -> None:
    names = [f"n{number:04}" for number in range(nodes)]
    places = {name: Where(rack=f"r{place // 8}") for place, name in enumerate(names)}
    service = Service(places, AUTO)
    made = [service.take(*story(name, NOW), NOW) for name in names]

    approved = [one for one in made if one.state == "approved"]
    assert len(approved) <= AUTO.cluster_nodes_per_hour
    assert all(tells(one) for one in made)
    assert {"refused"} == {one.state for one in made[AUTO.breaker_nodes :]}
    assert "breaker" in made[-1].reason


def test_h10_the_breaker_counts_against_the_pool_and_not_against_the_cluster() -> None:
    """6 of 10 GPU nodes are more than enough, in a cluster of 500 too."""
    places = {f"g{number}": Where(pool="gpu") for number in range(10)}
    known = msgspec.structs.replace(
        FINE, places=places, sizes={"pool:gpu": 10, "cluster": 500},
    )  # fmt: skip
    rules = msgspec.structs.replace(AUTO, breaker_share=0.6, breaker_nodes=50)
    five = {f"g{number}": NOW for number in range(5)}
    at_limit = decide(*story("g5"), msgspec.structs.replace(known, recent=five), rules, NOW)
    below = decide(
        *story("g4"), msgspec.structs.replace(known, recent=five), rules, NOW
    )  # g4 is one of the five

    assert "6 of 10 nodes of pool:gpu wanted out, it opens at 60 %" in at_limit.reason
    assert ("refused", "approved") == (at_limit.state, below.state)


def test_h10_jobs_and_racks_have_their_own_denominators_and_small_ones_do_not_trip() -> None:
    places = {f"n{number}": Where(rack="r1", job="j1") for number in range(4)}
    known = msgspec.structs.replace(
        FINE, places=places, sizes={"job:j1": 4, "rack:r1": 16}, recent={"n0": NOW, "n1": NOW}
    )

    assert not breaker_open(known, AUTO, ["n1"])[0]  # two of four: too few to be a mass
    is_open, words = breaker_open(known, AUTO, ["n2"])
    assert (True, "3 of 4 nodes of job:j1 wanted out, it opens at 30 %") == (is_open, words)


def test_h10_hysteresis_an_open_breaker_closes_only_when_few_are_wanted_out() -> None:
    known = msgspec.structs.replace(FINE, breaker_open=True)
    states = [
        breaker_open(known, AUTO, [f"n{number}" for number in range(count)])[0]
        for count in range(9)
    ]

    assert [False] * 3 + [True] * 6 == states
    aged = Wanted(100)
    for number in range(100):
        aged.take(f"n{number}", NOW - AUTO.breaker_window_s)
    known = msgspec.structs.replace(known, recent=aged.since(NOW - AUTO.breaker_window_s))
    assert not breaker_open(known, AUTO)[0]


def test_h10_a_tripped_breaker_stops_isolations_and_nothing_else() -> None:
    """A release asks no rail at all; what takes no node out passes an open breaker."""
    tripped = msgspec.structs.replace(
        FINE, breaker_open=True, recent={f"m{number}": NOW for number in range(20)}
    )
    verdict, incident = story("n1", job="j1")

    assert "refused" == decide(verdict, incident, tripped, AUTO, NOW).state
    for action in ("restart", "diagnose"):
        other = msgspec.structs.replace(verdict, action=action, targets=[])
        assert "approved" == decide(other, incident, tripped, AUTO, NOW).state


def test_h12_after_a_blip_of_the_collector_nothing_is_held_against_a_node() -> None:
    blip = msgspec.structs.replace(FINE, telemetry_age_s=90.0)
    verdict, incident = story("n1")

    assert "refused" == decide(verdict, incident, blip, AUTO, NOW).state
    assert "approved" == decide(verdict, incident, FINE, AUTO, NOW + 90.0).state


def test_h17_a_node_that_keeps_coming_back_broken_is_a_persons() -> None:
    known = msgspec.structs.replace(FINE, attempts={"n1": 3})
    made = decide(*story("n1"), known, AUTO, NOW)

    assert "n1 was taken out 3 times in 604800 s" in made.reason
    assert ("refused", True) == (made.state, tells(made))


def test_h18_what_waits_for_the_checkpoint_stays_so() -> None:
    verdict, incident = story("n1", job="j1")
    patient = msgspec.structs.replace(verdict, when="at_checkpoint")
    incident = msgspec.structs.replace(incident, verdict=patient, verdicts=[patient])

    assert "at_checkpoint" == decide(patient, incident, FINE, AUTO, NOW).verdict.when


def test_g7_a_verdict_is_no_news_because_it_is_said_again() -> None:
    """Incidents are repeated every ten minutes; the decision's id and verdict do not change."""
    verdict, incident = story("n1")
    made = [
        decide(verdict, msgspec.structs.replace(incident, rev=rev), FINE, AUTO, NOW + 600.0 * rev)
        for rev in range(3)
    ]

    assert 1 == len({(one.id, one.state) for one in made})


def test_a_quarantine_has_a_budget_of_its_own() -> None:
    nodes = [f"n{number:02}" for number in range(40)]
    verdict = Verdict("isolate", "Because of 40.", nodes, "now", NOW, "quarantine", None,
                      "quarantine")  # fmt: skip
    _, incident = story("n00", job="j1")
    incident = msgspec.structs.replace(incident, verdict=verdict, verdicts=[verdict])
    spent = msgspec.structs.replace(FINE, used={"cluster": Used(4, 12), "job:j1": Used(2, 4)})
    full = msgspec.structs.replace(FINE, used={"quarantine": Used(0, 30)})

    assert {"quarantine": 40} == charges(verdict, "j1", FINE)
    assert "waiting" == decide(verdict, incident, spent, AUTO, NOW).state
    assert "30 used and 40 wanted of 64" in decide(verdict, incident, full, AUTO, NOW).reason


@given(
    st.lists(
        st.tuples(
            st.integers(0, 39),
            st.sampled_from(["", "j1", "j2"]),
            st.floats(0.0, 4 * HOUR),
        ),
        max_size=80,
    ),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_whatever_the_incidents_isolations_never_exceed_a_budget(
    stories: list[tuple[int, str, float]], breaks: bool
) -> None:
    rules = AUTO if breaks else msgspec.structs.replace(
        AUTO, breaker_nodes=10_000, breaker_share_nodes_min=10_000
    )  # fmt: skip
    places = {
        f"n{number}": Where(f"r{number // 8}", f"l{number // 16}", "gpu") for number in range(40)
    }
    service, now = Service(places, rules), NOW
    for number, (node, job, gap_s) in enumerate(stories):
        now += gap_s
        service.take(*story(f"n{node}", now, job, f"i{number}"), now)

    most = {"job": (2, 4), "rack": (2, 4), "leaf": (2, 4), "pool": (4, 12), "cluster": (4, 12)}
    for at, scope, _ in service.spent:  # the window is fullest at one of its ends
        used = service.used(at)[scope]
        hour, day = most[scope.partition(":")[0]]
        assert used.hour <= hour, (scope, used)
        assert used.day <= day, (scope, used)


@pytest.mark.parametrize("count", [3, 30])
def test_what_a_person_approves_all_at_once_stays_within_the_budget(count: int) -> None:
    """Each waited while the budget was still unspent; each is asked again before its act."""
    rules = RailSettings(mode_default="approve", breaker_nodes=1_000)
    stories = [story(f"n{number}", NOW) for number in range(count)]
    waiting = [decide(*one, FINE, rules, NOW) for one in stories]
    approved = {
        one.id: msgspec.structs.replace(one, state="approved", by="alice") for one in waiting
    }
    done = 0
    for one, (_, incident) in zip(list(approved.values()), stories, strict=True):
        spent = sum(1 for other in approved.values() if other.state == "approved")
        known = msgspec.structs.replace(FINE, used={"cluster": Used(spent, spent)})
        approved[one.id] = recheck(one, incident, known, rules, NOW + 1.0)
        done += approved[one.id].state == "approved"

    assert {"waiting"} == {one.state for one in waiting}
    assert min(count, rules.cluster_nodes_per_hour) == done
