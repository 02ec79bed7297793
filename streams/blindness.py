"""Which expected nodes a shard does not see: altogether, and source by source. Read only.

Read by whoever asks the worker for its metrics, in a thread of its own: what it takes from the fold
it copies first, and a number that is a moment old is as good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streams.fold import Fold
    from streams.ticks import SourceTicks


class Blindness(NamedTuple):
    """Counts of nodes.

    expected  that should report
    blind     of these, not heard for the patience of `silence`
    sources   source -> nodes in service that ever sent it, and of these those that do not now;
              a node without GPUs never sends theirs, and nobody misses them
    """

    expected: int
    blind: int
    sources: dict[str, tuple[int, int]]


def blindness(fold: Fold) -> Blindness:
    """What holds at the fold's `now`; a source that nobody ever sent is not named."""
    covered = fold.covered()
    serving = set(fold.inventory.expected())
    sources = {name: _missing(fold, source, serving) for name, source in list(fold.sources.items())}
    return Blindness(covered.expected, len(covered.blind), sources)


def _missing(fold: Fold, source: SourceTicks, serving: set[str]) -> tuple[int, int]:
    rules, interval_s = fold.settings.silence, source.interval_s
    since_s = fold.now - max(rules.patience_s, rules.patience_ticks * interval_s)
    pairs = zip(list(source.names), list(source.pairs), strict=False)
    sees = [(pair.heard + 1) * interval_s >= since_s for name, pair in pairs if name in serving]
    return len(sees), sees.count(False)
