"""A verdict that a passing rail refused is decided again when its incident is said again."""

from __future__ import annotations

import msgspec

from actions.context import Site, rail_context
from actions.ledger import Ledger
from actions.rails import decide
from actions.service import ActionService
from telemetry.actions import Decision, RailContext
from telemetry.findings import Incident, Verdict
from telemetry.settings import ActSettings, RailSettings
from tests.acting import incident

AT = 1_700_000_000.0  # of the incidents' verdict
SETTINGS = ActSettings(rails=RailSettings(mode_default="auto"), first_observe_s=0.0)
FINE = RailContext(nodes=100, blind_nodes=0, telemetry_age_s=1.0, listing_age_s=1.0)


class Decider:
    """The service with its ledger; `context` is what the rails read next."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.context = FINE
        self.service = ActionService(self.ledger, SETTINGS, decide, lambda _now_s: self.context)

    def say(self, story: Incident, now_s: float) -> list[Decision]:
        said = self.service.incident(story, None, now_s)
        for one in said:
            self.ledger.take(one)
        return said


def test_what_a_blind_minute_refused_is_approved_when_it_is_said_again() -> None:
    decider = Decider()
    decider.context = msgspec.structs.replace(FINE, telemetry_age_s=90.0)
    (first,) = decider.say(incident("a"), AT + 5.0)
    assert [] == decider.say(incident("a", rev=1), AT + 60.0)  # still blind: no news

    decider.context = FINE
    (second,) = decider.say(incident("a", rev=2), AT + 600.0)

    assert ["refused", "approved"] == [first.state, second.state]
    assert (first.id, [0, 1]) == (second.id, [first.revision, second.revision])
    assert [] == decider.say(incident("a", rev=3), AT + 1_200.0)


def test_when_its_verdict_is_old_it_ends_with_that() -> None:
    decider = Decider()
    decider.context = msgspec.structs.replace(FINE, paused=True)
    decider.say(incident("a"), AT + 5.0)
    (last,) = decider.say(incident("a", rev=1), AT + 3_601.0)
    decider.context = FINE

    assert "refused" == last.state
    assert "fresh verdict" in {rail.name for rail in last.rails if not rail.passed}
    assert [] == decider.say(incident("a", rev=2), AT + 4_200.0)


def test_what_a_lasting_rail_refused_stays_refused() -> None:
    decider = Decider()
    decider.context = msgspec.structs.replace(FINE, attempts={"node-a": 3})
    (first,) = decider.say(incident("a"), AT + 5.0)
    decider.context = FINE

    assert "refused" == first.state
    assert [] == decider.say(incident("a", rev=1), AT + 600.0)


def test_a_quarantine_is_one_persons_decision_and_opens_no_breaker() -> None:
    nodes = [f"n{number}" for number in range(40)]
    held = Verdict("isolate", "Because of 40.", nodes, "now", AT, "quarantine", None, "quarantine")
    decider = Decider()
    decider.say(incident("a", verdict=held, verdicts=[held], job="j1"), AT + 1.0)

    assert {} == rail_context(decider.ledger, Site(), SETTINGS, AT + 2.0).recent


def test_h4_a_fault_that_comes_while_a_node_is_being_repaired_is_not_stranded() -> None:
    """30 s before the cooldown ends it is refused; said again ten minutes later it is decided."""
    decider = Decider()
    cooldown_s = SETTINGS.rails.cooldown_s
    decider.context = msgspec.structs.replace(FINE, acted_at={"node-a": AT - cooldown_s + 30.0})
    (early,) = decider.say(incident("a"), AT)
    (late,) = decider.say(incident("a", rev=1), AT + 600.0)

    assert ["refused", "approved"] == [early.state, late.state]
    assert "cooldown: node-a 1770 s ago, at least 1800 s" in early.reason
