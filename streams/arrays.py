"""Numpy arrays as plain bytes, for snapshots; the shape is checked when they come back."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from telemetry.errors import SnapshotError

TYPES = ("float64", "int64", "int32", "int8", "bool")


class Packed(msgspec.Struct, frozen=True):
    """One array, little-endian, C order."""

    type: str
    shape: tuple[int, ...]
    data: bytes


def pack(array: NDArray[Any]) -> Packed:
    """`array` as bytes."""
    little = np.ascontiguousarray(array)
    assert little.dtype.name in TYPES
    return Packed(little.dtype.name, little.shape, little.tobytes())


def unpack(packed: Packed) -> NDArray[Any]:
    """The array, its own copy. Raises SnapshotError where bytes and shape disagree."""
    if packed.type not in TYPES:
        raise SnapshotError(f"array of unknown type {packed.type}")
    kind = np.dtype(packed.type)
    if math.prod(packed.shape) * kind.itemsize != len(packed.data):
        raise SnapshotError("an array's bytes do not fill its shape")
    return np.frombuffer(packed.data, dtype=kind).reshape(packed.shape).copy()
