"""What went wrong in other tools when they acted: lost replies, nodes that are gone, stuck drains.

Each test is named by its case. The executors' own versions stand beside the executors.
"""

from __future__ import annotations

import msgspec
import pytest

from actions.rails import decide, recheck
from actions.service import outcome
from actions.site import Site as Facts
from actions.site import sizes_of
from telemetry.actions import Command, Decision, Outcome, Preconditions, Recovery, Where
from telemetry.errors import SourceUnavailable
from telemetry.settings import ActSettings, RailSettings
from tests.acting import SETTINGS, Site, World, asked, incident
from tests.recovering import REAL, Cluster, broken

DAY_S = 86_400.0


def commands(site: Site) -> list[Command]:
    return [one for one in site.of(Command) if isinstance(one, Command)]


def outcomes(site: Site) -> list[tuple[str, str]]:
    return [(one.status, one.reason) for one in site.of(Outcome) if isinstance(one, Outcome)]


class LosesReplies(World):
    """Does it; then the connection drops."""

    def execute(self, command: Command) -> Outcome:
        super().execute(command)
        raise SourceUnavailable("the connection was reset")


# -- H3: a lost reply is no reason to do it again


def test_h3_after_a_lost_reply_the_outcome_is_unknown_and_nothing_is_done_again() -> None:
    site = Site()
    site.world = LosesReplies(site.clock)
    site.tell(incident())
    site.start().step(3)
    for rev in range(1, 4):  # it is said again, to this instance and to the ones after it
        site.tell(incident(rev=rev))
        site.clock.advance(600.0)
        site.start().step(3)

    assert 1 == len(site.world.done)
    assert [("unknown", "no answer: the connection was reset")] == outcomes(site)
    assert 1 == len(commands(site)) == len(site.of(Decision))


def test_h3_who_comes_after_asks_the_world_before_anything_is_done_again() -> None:
    """The instance dies with the reply: the command keeps its id, and is found done."""
    site = Site()
    site.tell(incident())
    first = site.start()
    first.points["act.after"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        first.step(3)
    second = site.start()
    site.clock.advance(SETTINGS.act_within_s + SETTINGS.call_timeout_s)
    second.step(3)

    assert 1 == len(site.world.done)
    assert [("done", "found done by the instance before")] == outcomes(site)


# -- H6: a node that is gone between decision and act


class LacksNodes(World):
    """A scheduler from which nodes were taken away."""

    gone: frozenset[str] = frozenset()
    calls = 0

    def observe(self, targets: list[str], job: str = "") -> Preconditions:  # type: ignore[override]
        found = super().observe(targets, job)
        kept = {name: state for name, state in found.states.items() if name not in self.gone}
        return msgspec.structs.replace(found, states=kept)

    def execute(self, command: Command) -> Outcome:
        self.calls += 1
        missing = sorted(self.gone & set(command.targets))
        if missing:
            why = f"target gone: no node {', '.join(missing)}"
            return outcome(command, "failed", why, self._clock.time_s())
        return super().execute(command)


def test_h6_a_node_that_is_gone_ends_the_command_for_good_and_the_next_node_is_done() -> None:
    """Another tool tried it again for days."""
    site = Site()
    world = LacksNodes(site.clock)
    site.world = world
    site.tell(incident("a"), incident("b"))
    first = site.start()
    first.points["decision.after"] = 1.0
    world.gone = frozenset({"node-a"})
    first.step(3)
    for rev in range(1, 20):
        site.tell(incident("a", rev=rev))
        site.clock.advance(DAY_S / 4.0)
        first.step(2)
    site.start().step(3)

    assert [("failed", "target gone: no node node-a"), ("done", "done by the test")] == outcomes(
        site
    )
    assert 2 == world.calls
    assert 1 == len(world.done)


def test_h6_a_job_whose_node_is_gone_is_a_person_s_and_no_call_is_repeated() -> None:
    site = Cluster()
    site.world.behaves["drain"] = ["fails"]  # as the executor of a scheduler says of it
    site.tell(broken())
    site.start()
    site.run_for(5_000.0, 100.0)

    assert 1 == sum(one.step == "drain" for one in site.world.calls)
    assert 0 == site.world.applied["restart"]
    ended = [one.state for one in site.recoveries()]
    assert ["escalated"] == ended
    assert 1 == len(site.pages.pages())


# -- H13: a drain that never ends


def test_h13_a_drain_that_never_ends_has_a_deadline_and_blocks_no_other_node() -> None:
    """It is taken and never seen to be done; the next job's node goes meanwhile."""
    site = Cluster()
    site.world.behaves["drain"] = ["lies"]
    site.tell(broken("a"))
    site.start()
    site.run_for(10.0)
    site.tell(incident("b", action="isolate"))
    site.run_for(60.0)
    done = [one for one in commands(site) if one.targets == ["node-b"]]
    assert 1 == len(done)
    assert done[0].id in site.world.done

    site.run_for(
        REAL.recovery.waits_max_s if hasattr(REAL.recovery, "waits_max_s") else 2_000.0, 20.0
    )
    stuck = next(one for one in site.recoveries() if one.targets == ["node-a"])
    assert "escalated" == stuck.state
    assert "not seen to be done" in stuck.reason
    assert 1 == sum(one.step == "drain" and one.targets == ["node-a"] for one in site.world.calls)
    assert any("is a person's now" in page for page in site.pages.pages())


class TooMany(World):
    """Refuses each eviction of one node: "429, try again later"."""

    refused = "node-a"

    def execute(self, command: Command) -> Outcome:
        if self.refused in command.targets:
            return outcome(command, "failed", "429: the disruption budget", self._clock.time_s())
        return super().execute(command)


def test_h13_an_eviction_that_is_always_refused_is_told_once_and_the_others_go() -> None:
    site = Site()
    site.world = world = TooMany(site.clock)
    site.tell(incident("a"), incident("b"))
    first = site.start()
    first.step(3)
    for rev in range(1, 6):
        site.clock.advance(600.0)
        site.tell(incident("a", rev=rev))
        first.step(2)

    assert [("failed", "429: the disruption budget"), ("done", "done by the test")] == outcomes(
        site
    )
    # A person may try again: that is another command.
    world.refused = ""
    first.ask(asked("isolate", "node-a"))
    first.step(2)
    assert ("done", "done by the test") == outcomes(site)[-1]


# -- H16: one owner


def test_h16_a_node_that_another_tool_holds_is_decided_about_and_left_alone() -> None:
    rails = RailSettings(mode_default="auto")
    site = Site(ActSettings(rails=rails, first_observe_s=0.0), decide)
    site.recheck = recheck
    site.facts = held_by("repair-tool")
    site.tell(incident())
    site.start().step(3)

    (decision,) = site.of(Decision)
    assert isinstance(decision, Decision)
    assert "refused" == decision.state
    assert "drained already: node-a by repair-tool" in decision.reason
    assert [] == site.world.done
    assert [] == site.of(Recovery)


def test_h16_who_takes_the_node_between_decision_and_act_keeps_it() -> None:
    rails = RailSettings(mode_default="approve")
    site = Site(ActSettings(rails=rails, first_observe_s=0.0), decide)
    site.recheck = recheck
    site.facts = held_by("")
    site.tell(incident())
    instance = site.start()
    instance.step(2)
    site.facts = held_by("repair-tool")
    decision = site.of(Decision)[0]
    assert isinstance(decision, Decision)
    instance.ask(asked("approve", decision.id))
    instance.step(3)

    assert [] == site.world.done
    last = site.of(Decision)[-1]
    assert isinstance(last, Decision)
    assert "refused" == last.state
    assert "repair-tool" in last.reason


def held_by(who: str) -> Facts:
    now_s = 1_700_000_000.0
    places = {"node-a": Where("r1", "l1", "p1")}
    return Facts(
        places=places, sizes=sizes_of(places), drained_by={"node-a": who} if who else {},
        nodes=100, blind_nodes=0, telemetry_at=now_s, measured_at=now_s, listing_at=now_s,
    )  # fmt: skip
