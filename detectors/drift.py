"""A loss that creeps up and does not come back: medians of blocks of steps against the lowest.

What rises within two blocks and stays is another data mixture or learning rate, not a creep: the
new level is the reference from then on. So it is after a restart, and where the steps hold another
number of tokens. A single step, or a handful, moves no median.
"""

from __future__ import annotations

import math
from statistics import median

import msgspec

from telemetry.settings import CurvesSettings

LEVELS_MAX = 32  # beyond it two become one, and blocks twice as long
TOKENS_RATIO = 1.05  # blocks whose steps hold more or fewer tokens than by this are other work
FLAT_SHARE = 0.25  # of the rise: levels that differ by less stand still
MAD_TO_SIGMA = 1.4826
MEDIAN_ERROR = 1.2533  # of a median over that of a mean, normal distribution
NOISE_GAIN = 0.1


class Drift(msgspec.Struct):
    """One curve since its lowest level.

    block    values of the block under way, `worked` the tokens of its steps where told
    levels   medians of the blocks since the lowest one, which is the first; oldest first
    noise    sigma of single steps, from how the blocks scatter
    above_s  when the first of the blocks above the bound ended
    tokens   of a step in the blocks so far, None where nobody said
    open     whether the creep is said
    """

    block: list[float] = []
    worked: list[float] = []
    block_steps: int = 0
    levels: list[float] = []
    noise: float = 0.0
    above_s: float = 0.0
    tokens: float | None = None
    open: bool = False

    def take(self, value: float, tokens: float | None, at_s: float, rules: CurvesSettings) -> bool:
        """One usual step that ended at `at_s`; whether what is said (`open`) changed."""
        self.block_steps = max(self.block_steps, rules.drift_block_steps)
        self.block.append(value)
        if tokens is not None:
            self.worked.append(tokens)
        if len(self.block) < self.block_steps:
            return False
        block, self.block, worked, self.worked = self.block, [], self.worked, []
        was = self.open
        if self._is_other_work(worked):
            return self.restart()
        level = median(block)
        spread = MAD_TO_SIGMA * median([abs(value - level) for value in block])
        self.noise += NOISE_GAIN * (spread - self.noise) if self.levels else spread - self.noise
        self._add(level, at_s, rules)
        return self.open != was

    def restart(self) -> bool:
        """Nothing before counts any more; whether a creep was said until now."""
        was, self.open = self.open, False
        self.block, self.worked, self.levels, self.block_steps = [], [], [], 0
        return was

    def _is_other_work(self, worked: list[float]) -> bool:
        """Whether the block's steps hold another number of tokens than those before."""
        now = median(worked) if worked else None
        before, self.tokens = self.tokens, self.tokens if now is None else now
        if now is None or before is None:
            return False
        return max(now, before) > TOKENS_RATIO * min(now, before)

    def _add(self, level: float, at_s: float, rules: CurvesSettings) -> None:
        if not self.levels or level <= self.levels[0]:
            self.levels, self.open, self.block_steps = [level], False, rules.drift_block_steps
            return
        self.levels.append(level)
        self._judge(at_s, rules)
        if len(self.levels) > LEVELS_MAX:
            self._widen()

    def _widen(self) -> None:
        """Two blocks become one, so that the lowest is no luckier than those it is held against."""
        pairs = zip(self.levels[::2], self.levels[1::2], strict=False)
        levels = [(one + next_) / 2.0 for one, next_ in pairs]
        self.levels = levels[levels.index(min(levels)) :]
        self.block_steps *= 2

    def _judge(self, at_s: float, rules: CurvesSettings) -> None:
        best, last = self.levels[0], self.levels[-rules.drift_blocks :]
        if best <= 0.0:
            return
        error = MEDIAN_ERROR * self.noise / math.sqrt(self.block_steps)
        bound = max(rules.drift_ratio * best, best + rules.sigmas * error)
        if self.open:
            # Half of the way back is over; above it the level comes and goes with its noise.
            self.open = last[-1] > (best + bound) / 2.0
            return
        if last[-1] > bound and (len(last) < 2 or last[-2] <= bound):
            self.above_s = at_s
        if len(self.levels) <= rules.drift_blocks or min(last) <= bound:
            return
        rise = max(last) - best
        if self._steepest() < rules.drift_step_share * rise:
            self.open = True
        elif max(last) - min(last) < FLAT_SHARE * rise:
            self.levels = [min(last)]  # it stepped up and stays: the usual from now on

    def _steepest(self) -> float:
        """The most that it rose within two blocks."""
        return max((b - a for a, b in zip(self.levels, self.levels[2:], strict=False)), default=0.0)
