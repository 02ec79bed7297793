"""Whole runs of an exporter's values in the catalogue's unit. Pure.

Apart from `collectors.series` so that the node agent, which reads value by value, needs no numpy.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from collectors.series import BLANK_SMALLEST, INT64_BLANK_MIN, UNSIGNED_BLANK
from telemetry.metrics import Metric

FloatArray = NDArray[np.float64]

_GPU_BLANKS = np.array(
    [*range(2_147_483_632, 2_147_483_636), *range(140_737_488_355_328, 140_737_488_355_332)],
    dtype=np.float64,
)


def clean(metric: Metric, values: FloatArray, blanked: Counter[tuple[str, str]]) -> FloatArray:
    """Values in the catalogue's unit; blank, junk and NaN are NaN and counted by reason."""
    scaled = values if metric.scale == 1.0 else values * metric.scale
    inside = (scaled >= metric.valid_min) & (scaled <= metric.valid_max) & np.isfinite(scaled)
    full = values == metric.saturates_at if metric.saturates_at is not None else None
    blank = _blank(metric, values)
    if blank is None and bool(inside.all()) and (full is None or not bool(full.any())):
        return scaled
    nothing = np.zeros(len(values), dtype=np.bool_)
    blank = nothing if blank is None else blank
    full = nothing if full is None else np.asarray(full, dtype=np.bool_)
    nan = np.isnan(values)
    outside = ~inside & ~nan & ~blank & ~full
    for reason, which in (
        ("nan", nan), ("blank", blank), ("range", outside), ("saturated", full),
    ):  # fmt: skip
        count = int(np.count_nonzero(which))
        if count:
            blanked[metric.name, reason] += count
    return np.where(inside & ~blank & ~full, scaled, np.nan)


def _blank(metric: Metric, values: FloatArray) -> NDArray[np.bool_] | None:
    if not bool((values >= BLANK_SMALLEST).any()):
        return None
    blank = (values == UNSIGNED_BLANK) | (values >= INT64_BLANK_MIN) & np.isfinite(values)
    if metric.device == "gpu":
        blank |= np.isin(values, _GPU_BLANKS)
    return np.asarray(blank, dtype=np.bool_)
