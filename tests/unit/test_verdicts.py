"""Incidents keep what was decided about them: merged, at the bound, under another name."""

from __future__ import annotations

import msgspec

from streams.verdicts import VERDICTS_MAX, Judge
from telemetry.findings import Action, Context, Incident, Isolation, Verdict
from telemetry.settings import PolicySettings

POLICY = PolicySettings()
UNDECIDED = Verdict("none", "", [], "now", 0.0)


class Ladder:
    """Says what it was told to say next."""

    def __init__(self) -> None:
        self.action: Action = "none"
        self.rung = ""

    def __call__(
        self, incident: Incident, context: Context, policy: PolicySettings, now: float
    ) -> Verdict:
        targets = ["n1"] if self.action == "isolate" else []
        return Verdict(self.action, self.action, targets, "now", now, self.rung)


def judge(ladder: Ladder) -> Judge:
    def context(_incident: Incident, ledger: list[Isolation]) -> Context:
        return Context(
            job_nodes=[], job_progressing=None, replacements=None, ledger=ledger,
            blind_share=0.0, protected=[],
        )  # fmt: skip

    return Judge(ladder, context)


def incident(name: str, **changes: object) -> Incident:
    one = Incident(
        id=name, rev=0, scope="node:n1", opened_at=1.0, closed_at=None, job="", cause="unknown",
        kind="node_silent", severity="warning", confidence=0.5, suspects=[], evidence=[],
        verdict=UNDECIDED, verdicts=[],
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def test_what_acted_in_a_merged_story_acts_on_in_the_elder() -> None:
    """The elder is new, as a leaf's story is, or it was told before."""
    for told_before in (False, True):
        ladder = Ladder()
        court = judge(ladder)
        if told_before:
            court.take([incident("elder")], POLICY, 4.0)
        ladder.action = "isolate"
        court.take([incident("younger")], POLICY, 5.0)
        ladder.action = "page"
        merged = incident("younger", closed_at=9.0, merged_into="elder")
        said = court.take([incident("elder", scope="leaf:l1"), merged], POLICY, 9.0)

        elder = next(one for one in said if one.id == "elder")
        assert (elder.verdict.action, elder.verdict.at) == ("isolate", 5.0)
        assert [v.action for v in elder.verdicts][-1] == "page"
        assert [line.incident for line in court.docket.ledger] == ["elder"]


def test_an_elder_that_has_nothing_else_to_say_says_what_it_inherited() -> None:
    ladder = Ladder()
    court = judge(ladder)
    court.take([incident("elder")], POLICY, 4.0)
    ladder.action = "isolate"
    court.take([incident("younger")], POLICY, 5.0)
    ladder.action = "none"
    said = court.take([incident("younger", closed_at=9.0, merged_into="elder")], POLICY, 9.0)

    assert [(one.id, one.verdict.action) for one in said] == [
        ("younger", "isolate"),
        ("elder", "isolate"),
    ]


def test_an_acting_verdict_stays_beyond_the_bound() -> None:
    ladder = Ladder()
    court = judge(ladder)
    for turn in range(3 * VERDICTS_MAX):
        ladder.action = "isolate" if turn == VERDICTS_MAX + 20 else "page"
        ladder.rung = str(turn)
        said = court.take([incident("i")], POLICY, float(turn))[0]

    assert len(said.verdicts) == VERDICTS_MAX
    assert said.verdict.at == VERDICTS_MAX + 20
    assert said.verdicts[-1].rung == str(3 * VERDICTS_MAX - 1)


def test_everything_can_be_closed_at_once_and_is_forgotten_in_time() -> None:
    court = judge(Ladder())
    court.take([incident("i")], POLICY, 1.0)
    closed = court.close_all(5.0)

    assert [(one.rev, one.closed_at) for one in closed] == [(1, 5.0)]
    assert court.advance(POLICY, 700.0, forget_s=600.0) == []
    assert court.docket.incidents == {}


def test_changed_rules_say_anew_only_what_they_decide_otherwise() -> None:
    ladder = Ladder()
    court = judge(ladder)
    court.take([incident("open"), incident("closed")], POLICY, 3.0)
    court.take([incident("closed", closed_at=4.0)], POLICY, 4.0)

    assert court.reconsider(POLICY, 5.0) == []
    ladder.action = "isolate"
    (said,) = court.reconsider(POLICY, 6.0)

    assert (said.id, said.rev, said.verdict.action, said.verdict.at) == ("open", 1, "isolate", 6.0)
