"""Seeded noise that is the same on every machine: integer bits only, no transcendental function."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LANES = np.uint64(0x00FF00FF00FF00FF)
_FOLD = np.uint64(0x0001000100010001)
_BYTE = np.uint64(8)
_TOP = np.uint64(48)
# The sum of eight independent bytes: mean 8 * 127.5, variance 8 * (256^2 - 1) / 12.
_MEAN = 1020.0
_SD = 209.0198


class Noise:
    """One independent stream of random numbers, named by a seed and a purpose."""

    def __init__(self, seed: int, purpose: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, purpose])))

    def normal(self, *shape: int) -> FloatArray:
        """Nearly Gaussian numbers, mean 0, sd 1, never beyond 4.9: sums of eight random bytes."""
        bits = self.rng.integers(0, 2**64, size=prod(shape), dtype=np.uint64)
        upper = bits >> _BYTE
        upper &= _LANES
        bits &= _LANES
        bits += upper
        bits *= _FOLD
        bits >>= _TOP
        values = bits.astype(np.float64)
        values -= _MEAN
        values /= _SD
        return values.reshape(shape)

    def uniform(self, low: float, high: float, *shape: int) -> FloatArray:
        """Uniform numbers in [low, high)."""
        return low + (high - low) * self.rng.random(shape)

    def places(self, size: int, share: float) -> IntArray:
        """Random flat positions in an array of `size`, `share` of them in the long run."""
        count = int(size * share + self.rng.random())
        return self.rng.integers(0, size, size=count)


def milliseconds(times_s: FloatArray) -> FloatArray:
    """Times rounded to whole milliseconds, as exporters print them."""
    return np.asarray(np.rint(times_s * 1000.0) / 1000.0, dtype=np.float64)
