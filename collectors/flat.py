"""Flat objects, as `nodewarden parse` prints them, from values that nobody has checked. Pure."""

from __future__ import annotations

from typing import Any

from telemetry.codec import AT_MAX_S, AT_MIN_S

Flat = dict[str, Any]
TEXT_MAX = 4_096
NAME_MAX = 253
MANY_MAX = 4_096


def rejected(file: str, reason: str, text: str, line: int | None = None) -> Flat:
    """Input that was recognised and cannot be used."""
    found: Flat = {
        "file": file, "type": "rejected", "reason": text_of(reason), "text": text_of(text),
    }  # fmt: skip
    return found if line is None else {**found, "line": line}


def text_of(value: object, size: int = TEXT_MAX) -> str:
    """A text of at most `size` characters without lone surrogates; "" where it is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    try:
        said = str(value)[:size]
    except ValueError:  # an integer of thousands of digits
        return ""
    return said.encode("utf-8", "replace").decode("utf-8")


def name_of(value: object) -> str:
    """A name that people and tools will see; "" where it is none."""
    said = text_of(value, NAME_MAX + 1).strip()
    return said if len(said) <= NAME_MAX and said.isprintable() else ""


def dict_of(value: object) -> dict[str, Any]:
    """The object; empty where it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The list; empty where it is none."""
    return value if isinstance(value, list) else []


def words_of(value: object) -> list[str]:
    """One word or a list of words."""
    many = value if isinstance(value, list) else [value]
    return [word for word in map(text_of, many[:MANY_MAX]) if word]


def number_of(value: object) -> float | None:
    """A finite number: plain, as text, or as {"set", "infinite", "number"}; None where not said."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, str):
        bare = value.strip()
        value = float(bare) if len(bare) < 20 and bare.isascii() and bare.isdecimal() else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 2.0**63 else None


def count_of(value: object) -> int | None:
    """A whole number from 0; None where it is none."""
    number = number_of(value)
    return int(number) if number is not None and number >= 0.0 and number == int(number) else None


def time_of(value: object) -> float | None:
    """Unix seconds between 2000 and 2100; 0 and all else are no time."""
    number = number_of(value)
    return number if number is not None and AT_MIN_S <= number < AT_MAX_S else None
