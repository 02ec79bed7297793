"""Data as text that is safe to look at: times, durations, numbers, and hostile strings made plain.

Escaping for HTML or for rich markup is the renderer's work; this makes characters visible that
would move, hide or reorder what stands around them.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

MISSING = "–"
UNKNOWN_TIME = "unknown time"
NAME_MAX = 120
LINE_MAX = 1_000
MARKS_MAX = 2  # stacked accents beyond it climb over the neighbouring lines

# Control, format (bidirectional overrides, zero width), surrogate, private use, unassigned, and
# the line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARKS = frozenset({"Mn", "Me"})


def visible(text: str, limit: int = LINE_MAX) -> str:
    r"""`text` in one line, hidden characters as escapes, cut after `limit` characters with a note.

    A tab becomes a space; ESC becomes `\x1b`, a right-to-left override `\u202e`.
    """
    shown: list[str] = []
    marks = 0
    for char in text[:limit]:
        category = unicodedata.category(char)
        marks = marks + 1 if category in _MARKS else 0
        if char == "\t":
            shown.append(" ")
        elif category in _HIDDEN or marks > MARKS_MAX:
            shown.append(_escape(char))
        else:
            shown.append(char)
    if len(text) > limit:
        shown.append(f" … [cut, {len(text):,} characters in all]")
    return "".join(shown)


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def name(text: str) -> str:
    """A node, entity, job or metric name: `visible`, short, "–" where empty."""
    return visible(text, NAME_MAX) if text else MISSING


def _moment(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def utc(at: float | None, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """`at` (Unix seconds) in UTC, to the second; "unknown time" where it is no time."""
    moment = None if at is None else _moment(at)
    return UNKNOWN_TIME if moment is None else moment.strftime(form)


def clock(at: float | None) -> str:
    """The time of day of `at` in UTC, "14:02:15"."""
    return utc(at, "%H:%M:%S")


def iso(at: float | None) -> str:
    """`at` for the `datetime` attribute of a `time` element, "" where it is no time."""
    return "" if at is None or _moment(at) is None else utc(at, "%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float | None) -> str:
    """`seconds` as a person says it: "0.4 s", "45 s", "10 min 5 s", "3 h 20 min", "2 d 4 h"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    if whole < 10 and round(whole, 1) != round(whole):
        return f"{sign}{whole:.1f} s"
    whole = round(whole)
    for big, big_name, small, small_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= big:
            rest = whole % big // small
            return f"{sign}{whole // big} {big_name}" + (f" {rest} {small_name}" if rest else "")
    return f"{sign}{whole} s"


def number(value: float | None) -> str:
    """At most 6 significant digits with thousands separators: "18,234.5", "0.00012", "–"."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.4g}"
    digits = max(0, min(8, 5 - math.floor(math.log10(abs(value)))))
    text = f"{float(f'{value:.6g}'):,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: float) -> str:
    """A number for an axis: "20 k", "1.5 M", "0.05"."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scale = 1e3 if letter == "k" else size
            return f"{value / scale:.5g} {letter}"
    return f"{value:.5g}"


def several(items: list[str], shown: int = 3) -> str:
    """ "a", "a and b", "a, b, c and 5 more"."""
    names = [name(item) for item in items[:shown]]
    if len(items) > shown:
        return f"{', '.join(names)} and {len(items) - shown:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
