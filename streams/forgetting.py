"""Nodes that are gone for good leave the engine: its state grows with the cluster, not with time.

A node that no listing names and that has been silent for longer than all windows has nothing left
that anybody could judge. Where nobody lists nodes, only a day of silence tells that one is gone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.fold import Fold

SWEEP_S = 900.0


def sweep_due(now: float, swept: int) -> bool:
    """Whether it is time to look again; `swept` is the number of the last sweep."""
    return math.isfinite(now) and math.floor(now / SWEEP_S) > swept


def forget_gone(fold: Fold) -> None:
    """Drop what the fold keeps of nodes that are gone; called when `sweep_due`."""
    fold.swept = math.floor(fold.now / SWEEP_S)
    rules = fold.settings.ticks
    windows_s = rules.keep_s + fold.settings.zscore.window_s
    gone = fold.inventory.gone(
        fold.now - max(rules.forget_unlisted_s, windows_s),
        fold.now - max(rules.forget_s, windows_s),
    )
    if not gone:
        return
    for source in fold.sources.values():
        source.drop(gone)
    fold.speakers.forget(gone)
    fold.inventory.forget(gone)
    fold.look_at_due()
