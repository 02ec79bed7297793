"""Which ranks compute longer than the others of their stage; evidence, never a fault by itself."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from detectors.base import FloatArray, IntArray, Sighting, View
from detectors.chance import expected_by_chance
from detectors.gather import WHOLE_JOB, WholeStep
from detectors.two_sigma import slow_by_throughput, slow_by_time
from detectors.votes import Votes
from telemetry.findings import six_digits
from telemetry.settings import StragglerSettings

SIZE_STEPS = 16
RANKS_MIN = 3  # two ranks cannot say which of them is wrong


class RankRun(msgspec.Struct):
    """A rank that was slow lately; ranks without one were not.

    bits      the last steps, the newest lowest: 1 slow
    onset_s   when the first slow step of the run began
    seen      what is open, None before
    """

    onset_s: float
    bits: int = 0
    seen: Sighting | None = None


class SlowRanks(msgspec.Struct):
    """One job: steps compared so far (up to the window), and the ranks that stood out.

    votes     the vote for the slow node
    late      slow ranks of each compared step of the window
    nodes     of the job, looked up every `SIZE_STEPS` steps
    rank_max  the highest rank that ever reported: a lower bound of how many there are
    """

    compared: int = 0
    runs: dict[int, RankRun] = {}
    votes: Votes = msgspec.field(default_factory=Votes)
    rank_max: int = 0
    late: list[int] = []
    nodes: int = 0

    def judge(
        self, whole: WholeStep, job: str, view: View, settings: StragglerSettings
    ) -> list[Sighting]:
        """One step of one job: sightings of the ranks that begin or cease to stand out."""
        self.rank_max = max(self.rank_max, int(whole.ranks.max(initial=0)))
        stages = _stages(whole, job, view)
        if not stages or self._are_few(whole, job, view, settings):
            return []
        work = _work(whole)
        slow: dict[int, tuple[float, float, str]] = {}
        outliers: dict[int, str] = {}
        for members in stages:
            values = work[members]
            middle = float(np.median(values))
            if whole.throughput is None:
                late = values > settings.rank_ratio * middle
            else:
                late = values * settings.rank_ratio < middle
            if not late.any():
                continue
            beyond_of = slow_by_time if whole.throughput is None else slow_by_throughput
            published = beyond_of(values, settings.group_min)
            for place, beyond in zip(members[late].tolist(), published[late].tolist(), strict=True):
                rank = int(whole.ranks[place])
                node = view.rank_node(job, rank) or whole.nodes[whole.report[place]]
                slow[rank] = (float(work[place]), middle, node)
                if beyond:
                    outliers[rank] = node
        told = sum(map(len, stages))
        said = self.votes.take(outliers, told, whole.began_s, job, settings)
        self.compared = min(self.compared + 1, settings.rank_window_steps)
        self.late = [*self.late, len(slow)][-settings.rank_window_steps :]
        if not slow and not self.runs:
            return said
        measured = set(whole.ranks[np.concatenate(stages)].tolist())
        return [*said, *self._fold(slow, measured, whole, job, settings)]

    def _are_few(
        self, whole: WholeStep, job: str, view: View, settings: StragglerSettings
    ) -> bool:  # fmt: skip
        """Whether so few of the job report the step that it cannot say who stands out."""
        told = np.count_nonzero(~np.isnan(_work(whole)))
        if told < settings.report_share * (self.rank_max + 1):
            return True
        if self.nodes == 0 or whole.step % SIZE_STEPS == 0:
            self.nodes = len(view.job_nodes(job, whole.at_s))
        named, enough = set(whole.nodes), settings.report_share * self.nodes
        if "" in named and len(named) - 1 < enough:
            named.update(view.rank_node(job, rank) for rank in whole.ranks.tolist())
        return len(named - {""}) < enough

    def _fold(
        self,
        slow: dict[int, tuple[float, float, str]],
        measured: set[int],
        whole: WholeStep,
        job: str,
        settings: StragglerSettings,
    ) -> list[Sighting]:
        said: list[Sighting] = []
        mask = (1 << settings.rank_window_steps) - 1
        for rank in slow.keys() - self.runs.keys():
            self.runs[rank] = RankRun(whole.began_s)
        for rank in sorted(self.runs.keys() & measured):
            run = self.runs[rank]
            run.bits = ((run.bits << 1) | (rank in slow)) & mask
            share = run.bits.bit_count() / self.compared
            enough = self.compared >= settings.rank_min_steps and not self._by_chance(
                run, len(measured), settings
            )
            if run.seen is None and enough and share >= settings.rank_share and rank in slow:
                seen = _sighting if whole.throughput is None else _sighting_of_throughput
                run.seen = seen(rank, slow[rank], run, share, job)
                said.append(run.seen)
            elif run.seen is not None and share < settings.rank_share / 2.0:
                said.append(replace(run.seen, active=False))
                run.seen = None
            if run.bits == 0:
                del self.runs[rank]
        return said

    def _by_chance(self, run: RankRun, ranks: int, settings: StragglerSettings) -> bool:
        """Whether, as often as the other ranks are late, one of them may well look like this."""
        count, steps = run.bits.bit_count(), len(self.late)
        share = max(0, sum(self.late) - count) / max(1, steps * (ranks - 1))
        return expected_by_chance(min(count, steps), steps, share, ranks) > settings.chance_max

    def forget(self) -> list[Sighting]:
        """Clear what is open: the job restarted or is over."""
        said = [replace(run.seen, active=False) for _, run in sorted(self.runs.items()) if run.seen]
        said += self.votes.forget()
        self.runs, self.compared, self.late, self.votes = {}, 0, [], Votes()
        return said


def _work(whole: WholeStep) -> FloatArray:
    """What the ranks are compared by, shape (ranks,): compute time, or throughput without one."""
    return whole.compute_time_s if whole.throughput is None else whole.throughput


def _stages(whole: WholeStep, job: str, view: View) -> list[IntArray]:
    """Places in `whole` of the ranks that do the same work, at least three of them."""
    told = np.flatnonzero(~np.isnan(_work(whole)) & (whole.ranks != WHOLE_JOB))
    if told.size < RANKS_MIN:
        return []
    stage_of = np.array([_stage(node, whole.at_s, view) for node in whole.nodes], dtype=np.int64)
    stages = stage_of[whole.report]
    if "" in whole.nodes:
        nameless = np.array([node == "" for node in whole.nodes])[whole.report]
        for place in told[nameless[told]].tolist():
            node = view.rank_node(job, int(whole.ranks[place]))
            stages[place] = _stage(node, whole.at_s, view)
    groups = [told[stages[told] == stage] for stage in np.unique(stages[told]).tolist()]
    return [group for group in groups if group.size >= RANKS_MIN]


def _stage(node: str, at_s: float, view: View) -> int:
    stage = view.place(node, at_s).stage if node else None
    return -1 if stage is None else stage


def _sighting(
    rank: int, slow: tuple[float, float, str], run: RankRun, share: float, job: str
) -> Sighting:
    observed, expected, node = slow
    return Sighting(
        active=True, detector="straggler", node=node, entity=f"rank:{rank}",
        metric="compute_time_s", onset_s=run.onset_s, role="evidence", kind="gpu_slow",
        cause="hardware", job=job, observed=six_digits(observed), expected=six_digits(expected),
        unit="s", score=six_digits(min(1.0, share)),
        text=f"rank {rank} computes {observed:.3g} s where its stage takes {expected:.3g} s "
        f"({100.0 * (observed / expected - 1.0):+.0f} %), in {100.0 * share:.0f} % of its steps",
    )  # fmt: skip


def _sighting_of_throughput(
    rank: int, slow: tuple[float, float, str], run: RankRun, share: float, job: str
) -> Sighting:
    """The same where a rank tells how much it does and not how long it takes."""
    observed, expected, _ = slow
    return replace(
        _sighting(rank, slow, run, share, job), metric="throughput", unit="per second",
        text=f"rank {rank} does {observed:.4g} a second where its stage does {expected:.4g} "
        f"({100.0 * (observed / expected - 1.0):+.0f} %), in {100.0 * share:.0f} % of its steps",
    )  # fmt: skip
