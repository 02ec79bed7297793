"""Texts and keys within other people's limits."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

KEY_MAX = 255  # PagerDuty: dedup_key
SUMMARY_MAX = 1_024  # PagerDuty: payload.summary
LAST_S = 253_402_300_799.0  # of the year 9999
_JOINER, _SELECTORS = "\u200d", ("\ufe0e", "\ufe0f")
_CUT = " …"


def clean(text: str) -> str:
    """One line that can be written as UTF-8: no control characters, no half characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() or c == _JOINER else " " for c in whole).split())


def cut(text: str, length_max: int) -> str:
    """At most `length_max` characters, never between a letter and the marks that belong to it."""
    if len(text) <= length_max:
        return text
    end = length_max - len(_CUT)
    while end > 0 and (_belongs(text[end]) or text[end - 1] == _JOINER):
        end -= 1
    return text[: end or length_max - len(_CUT)].rstrip() + _CUT


def dedup_key(group: Mapping[str, str], prefix: str = "nodewarden") -> str:
    """At most 255 characters; the same for the same labels on every machine, and for no others."""
    pairs = ",".join(f"{name}={quote(group[name], safe=' :./@')}" for name in sorted(group))
    key = f"{prefix}:{pairs}"
    if len(key) <= KEY_MAX:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{key[: KEY_MAX - len(digest) - 1]}#{digest}"


def iso(at_s: float) -> str:
    """RFC 3339 in UTC, milliseconds; what no calendar has becomes its first or last second."""
    return datetime.fromtimestamp(min(max(at_s, 0.0), LAST_S), UTC).isoformat(
        timespec="milliseconds"
    )


def _belongs(character: str) -> bool:
    return (
        unicodedata.combining(character) != 0
        or character in _SELECTORS
        or character == _JOINER
        or unicodedata.category(character) in ("Mn", "Me")
    )
