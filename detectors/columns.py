"""Reading the columns of a `Steps` record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def value_at(column: Sequence[T], row: int) -> T | None:
    """The value of `row`: a column of one speaks for all rows, an empty one for none."""
    if row < len(column):
        return column[row]
    return column[0] if len(column) == 1 else None


def full_column(column: Sequence[T], rows: int) -> list[T | None]:
    """The values of rows 0 to `rows` - 1, each as `value_at` reads it."""
    if len(column) == 1:
        return [*column] * rows
    return [*column[:rows], *[None] * (rows - len(column))]
