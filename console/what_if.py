"""Two replays of the same past side by side: what other settings would have said.

Data is put into `Text` objects after `visible`. On a pipe there are no boxes and no wrapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from console import story as words
from console.summary import score_tables
from console.text import MISSING, clock, duration, name, utc, visible
from telemetry.findings import Incident, Verdict

Change = Literal["only first", "only second", "verdict"]
Field = Literal["action", "targets", "when", "at", "reason", "later verdicts"]

ROWS_MAX, SETTINGS_MAX, NOTES_MAX = 500, 60, 20
_HEADS = ("opened", "incident", "what changes", "first", "second", "delay")
_WORDS: dict[Change, str] = {
    "only first": "lost: only the first",
    "only second": "new: only the second",
    "verdict": "",
}


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A key of the settings whose value differs, both as text."""

    key: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Difference:
    """An incident that only one of the two has, or of which they say something else.

    fields   of a verdict: what differs in it
    delay_s  how much later the second's verdict came, negative: earlier; None without two verdicts
    """

    change: Change
    first: Incident | None
    second: Incident | None
    fields: tuple[Field, ...] = ()
    delay_s: float | None = None

    @property
    def incident(self) -> Incident:
        """The first's, else the second's."""
        found = self.first or self.second
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The comparison.

    first, second  where the settings are from, in words
    same           incidents of which both say the same
    scores         of both, as plain values, or none
    """

    read: str
    first: str
    second: str
    settings: Sequence[SettingDifference]
    differences: Sequence[Difference]
    same: int
    notes: Sequence[str] = ()
    scores: Sequence[Mapping[str, Any]] = ()


def print_what_if(found: WhatIf, console: Console) -> None:
    """What differs in the settings, then one table of what differs in the incidents."""
    _say(console, Text("What if", style="bold"))
    _say(console, Text(f"from {visible(found.read, 300)}"))
    _say(console, Text(f"first: {visible(found.first, 300)}; second: {visible(found.second, 300)}"))
    for setting in found.settings[:SETTINGS_MAX]:
        both = f"{visible(setting.first, 120)} -> {visible(setting.second, 120)}"
        _say(console, Text(f"  {visible(setting.key, 120)}: {both}"))
    if (left_out := len(found.settings) - SETTINGS_MAX) > 0:
        _say(console, Text(f"  {left_out:,} more settings differ"))
    if not found.settings:
        _say(console, Text("  the engine's settings do not differ"))
    _say(console, Text(_count(found), style="bold"))
    if found.differences:
        _table(found.differences[:ROWS_MAX], console)
    if (left_out := len(found.differences) - ROWS_MAX) > 0:
        _say(console, Text(f"{left_out:,} more differences not shown here"))
    for whose, score in zip(("first", "second"), found.scores, strict=False):
        plain = score_tables(score)[0]
        _say(console, Text(f"score of the {whose}: " + "; ".join(map(" ".join, plain.rows))))
    for note in found.notes[:NOTES_MAX]:
        _say(console, Text(f"note: {visible(note, 600)}"))


def _say(console: Console, what: Text | Table) -> None:
    console.print(what, soft_wrap=not console.is_terminal, highlight=False, markup=False)


def _count(found: WhatIf) -> str:
    alike = f"{found.same:,} incident{'' if found.same == 1 else 's'} told alike"
    if not found.differences:
        return f"Nothing changes: {alike}."
    changes = [one.change for one in found.differences]
    parts = [
        f"{changes.count('only first')} lost", f"{changes.count('only second')} new",
        f"{changes.count('verdict')} with another verdict",
    ]  # fmt: skip
    return f"{', '.join(parts)}; {alike}."


def _table(differences: Sequence[Difference], console: Console) -> None:
    rows = [_row(one) for one in differences]
    if not console.is_terminal:
        for row in rows:
            _say(console, Text("  " + " | ".join(row)))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in _HEADS:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(field) for field in row))
    _say(console, table)


def _row(one: Difference) -> tuple[str, ...]:
    """As `_HEADS` says."""
    incident = one.incident
    about = f"{words.who(incident)}: {incident.kind}, {name(incident.id)}"
    changed = _WORDS[one.change] or ", ".join(one.fields)
    full = "reason" in one.fields
    return (
        utc(incident.opened_at), about, changed, _said(one.first, full), _said(one.second, full),
        _delay(one.delay_s),
    )  # fmt: skip


def _said(incident: Incident | None, full: bool) -> str:
    """The verdict; with its reason where that differs."""
    if incident is None:
        return MISSING
    verdict: Verdict = incident.verdict
    order = f"{words.act(verdict, incident.job)} ({clock(verdict.at)})"
    return f"{order}: {visible(verdict.reason, 600)}" if full else order


def _delay(delay_s: float | None) -> str:
    if delay_s is None:
        return MISSING
    if delay_s == 0.0:
        return "the same"
    return f"{duration(abs(delay_s))} {'later' if delay_s > 0.0 else 'earlier'}"
