"""Votes for the node that is slow: rounds of ten seconds, five of them make a verdict.

ByteRobust aggregates every 10 s, marks in each round the group with most outliers and takes the
one with the highest count of five. Our form: a rank is an outlier of a step where it takes longer
than mean + 2 sd of its stage and longer than `rank_ratio` of its median; the node must have had the
most in `vote_marks` rounds and one of its ranks must be an outlier in `rank_share` of the steps, so
that chance elects nobody. Evidence, as all that is said of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from detectors.base import Sighting
from detectors.chance import expected_by_chance
from telemetry.findings import six_digits
from telemetry.settings import StragglerSettings


class Votes(msgspec.Struct):
    """One job's vote under way.

    round_s  event time at which the round began
    told     ranks that were compared
    rounds   of this vote that are over; `steps` of it so far
    round    node -> outliers of the round, `marks` node -> rounds won, `count` node -> outliers
    ranks    rank -> steps in which it was an outlier, of the nodes that had any
    """

    round_s: float | None = None
    rounds: int = 0
    steps: int = 0
    told: int = 0
    began_s: float = 0.0
    round: dict[str, int] = {}
    marks: dict[str, int] = {}
    count: dict[str, int] = {}
    ranks: dict[int, int] = {}
    seen: Sighting | None = None

    def take(
        self, outliers: Mapping[int, str], told: int, began_s: float, job: str,
        settings: StragglerSettings,
    ) -> list[Sighting]:  # fmt: skip
        """One step's outliers, rank -> node, of the `told` ranks that were compared; what the vote
        says where it ends with it.
        """
        if self.round_s is None or began_s < self.round_s:
            self._begin(began_s)
        assert self.round_s is not None
        said: list[Sighting] = []
        if began_s - self.round_s >= settings.vote_s:
            said = self._close(began_s, job, settings)
        self.steps, self.told = self.steps + 1, max(self.told, told)
        for rank, node in outliers.items():
            if node:
                self.round[node] = self.round.get(node, 0) + 1
                self.count[node] = self.count.get(node, 0) + 1
                self.ranks[rank] = self.ranks.get(rank, 0) + 1
        return said

    def _close(self, at_s: float, job: str, settings: StragglerSettings) -> list[Sighting]:
        """The round is over; the fifth ends the vote."""
        if self.round:
            most = min(self.round, key=lambda node: (-self.round[node], node))
            self.marks[most] = self.marks.get(most, 0) + 1
        self.rounds, self.round_s, self.round = self.rounds + 1, at_s, {}
        if self.rounds < settings.vote_rounds:
            return []
        elected = self._elected(settings)
        said = self._turn(elected, job, settings)
        self._begin(at_s)
        return said

    def _elected(self, settings: StragglerSettings) -> str:
        if not self.count:
            return ""
        first = min(self.count, key=lambda node: (-self.count[node], node))
        most = min(max(self.ranks.values()), self.steps)
        others = (sum(self.ranks.values()) - most) / max(1, self.steps * (self.told - 1))
        chance = expected_by_chance(most, self.steps, others, self.told)
        sure = (
            self.marks.get(first, 0) >= settings.vote_marks
            and most >= settings.rank_share * self.steps
            and chance <= settings.chance_max
        )
        return first if sure else ""

    def _turn(self, elected: str, job: str, settings: StragglerSettings) -> list[Sighting]:
        if self.seen is not None and self.seen.node == elected:
            return []
        said = self.forget()
        if elected:
            all_of = sum(self.count.values())
            self.seen = Sighting(
                active=True, detector="straggler", node=elected, entity="",
                metric="compute_time_votes", onset_s=self.began_s, role="evidence",
                kind="gpu_slow", cause="hardware", job=job, unit="outliers",
                observed=float(self.count[elected]), score=six_digits(self.count[elected] / all_of),
                text=f"{elected} has {self.count[elected]} of {all_of} slow ranks in "
                f"{settings.vote_rounds} rounds of {settings.vote_s:g} s and the most in "
                f"{self.marks[elected]} of them",
            )  # fmt: skip
            said.append(self.seen)
        return said

    def _begin(self, at_s: float) -> None:
        self.round_s = self.began_s = at_s
        self.rounds = self.steps = self.told = 0
        self.round, self.marks, self.count, self.ranks = {}, {}, {}, {}

    def forget(self) -> list[Sighting]:
        """Clear what is open."""
        seen, self.seen = self.seen, None
        return [] if seen is None else [replace(seen, active=False)]
