"""The summary and the score as rows of words: what was read, what was lost, who was blind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from console.text import MISSING, duration, number, several, utc, visible

ROWS_MAX = 100
BLIND_SHOWN = 12

# Not 0 means that part of the input is missing from the judgement.
_LOSSES = {
    "rejected": "records that could not be read",
    "late": "came after their tick had closed",
    "duplicate": "came more than once, counted once",
    "lost": "missing from a numbered sequence",
    "truncated": "input ends in a torn part",
    "cold_start": "began without what came before",
}
_FIRST = ("records", "nodes", *_LOSSES)
_HARMLESS = frozenset({"duplicate"})


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the summary; `warns` where the reader should know before trusting the rest."""

    label: str
    value: str
    hint: str = ""
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A small table, every row as long as the head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def facts(summary: Mapping[str, Any]) -> list[Fact]:
    """The summary in a fixed order; what is not in it is not shown as 0."""
    found = list(_coverage(summary.get("coverage")))
    for key in _FIRST:
        if key in summary:
            value = summary[key]
            warns = key in _LOSSES and key not in _HARMLESS and bool(value)
            found.append(
                Fact(visible(key).replace("_", " "), cell(value), _LOSSES.get(key, ""), warns)
            )
    if summary.get("ettr") is not None:
        found.append(Fact("ETTR", cell(summary["ettr"]), "productive share of the time"))
    for key in ("event_s", "wall_s"):
        if isinstance(summary.get(key), int | float):
            hint = "of the cluster's time" if key == "event_s" else "this took"
            found.append(Fact(key.removesuffix("_s") + " time", duration(summary[key]), hint))
    known = {*_FIRST, "coverage", "ettr", "event_s", "wall_s"}
    more = [key for key in summary if key not in known][:ROWS_MAX]
    found += [Fact(visible(str(key)).replace("_", " "), cell(summary[key])) for key in more]
    return found


def _coverage(coverage: object) -> list[Fact]:
    if not isinstance(coverage, Mapping):
        return []
    expected, reporting = coverage.get("expected"), coverage.get("reporting")
    blind = [str(node) for node in coverage.get("blind") or ()]
    return [
        Fact("reporting", f"{cell(reporting)} of {cell(expected)}", "of what is expected to report",
             warns=expected != reporting),
        Fact("blind", several(blind, BLIND_SHOWN) if blind else "nobody",
             "we cannot see them: unknown, not healthy", warns=bool(blind)),
    ]  # fmt: skip


def score_tables(score: Mapping[str, Any]) -> list[Table]:
    """Plain values as one table, each list of objects as its own."""
    plain = {k: v for k, v in score.items() if not _objects(v)}
    tables = [Table("", ("what", "value"), tuple((label(k), cell(v, k)) for k, v in plain.items()))]
    for key, value in score.items():
        if _objects(value):
            tables.append(_table(key, value))
    return [table for table in tables if table.rows]


def _objects(value: object) -> bool:
    return (
        isinstance(value, Sequence) and bool(value) and all(isinstance(v, Mapping) for v in value)
    )


def _table(title: str, objects: Sequence[Mapping[str, Any]]) -> Table:
    head = tuple(dict.fromkeys(key for one in objects[:ROWS_MAX] for key in one))
    rows = tuple(tuple(cell(one.get(key), key) for key in head) for one in objects[:ROWS_MAX])
    return Table(label(title), tuple(map(label, head)), rows, max(0, len(objects) - ROWS_MAX))


def label(key: object) -> str:
    """A field name as a table head."""
    return visible(str(key), 60).removesuffix("_s").replace("_", " ")


def cell(value: object, key: str = "") -> str:
    """Any plain value as text: None is "–", a flag yes or no, a list is joined."""
    match value:
        case None:
            return MISSING
        case bool():
            return "yes" if value else "no"
        case int() | float():
            if key == "onset":
                return utc(value)
            return duration(value) if key.startswith("delay") else number(value)
        case str():
            return visible(value, 200)
        case Mapping():
            pairs = [f"{label(k)} {cell(v)}" for k, v in list(value.items())[:BLIND_SHOWN]]
            return ", ".join(pairs) or MISSING
        case Sequence():
            return several([cell(v) for v in value], BLIND_SHOWN) if value else "none"
        case _:
            return visible(str(value), 200)
