"""The words that tools print where they have no value. A word is not a number, and never 0."""

from __future__ import annotations

_WORDS = {
    "n/a": "not available",
    "na": "not available",
    "not available": "not available",
    "not supported": "not supported",
    "not found": "not found",
    "not active": "not available",
    "requested functionality has been deprecated": "not supported",
    "unsupported": "not supported",
    "insufficient permissions": "no permission",
    "unknown error": "error",
    "err!": "error",
    "error": "error",
    "unknown": "unknown",
    "gpu is lost": "error",
    "gpu requires reset": "error",
    "error - failed to convert to string": "error",
    "": "empty",
}
_WORD_CHARACTERS_MAX = 200


def missing_reason(text: str) -> str | None:
    """Why a printed value is none; None where `text` is no such word.

    `[N/A]`, `N/A (no PMA)` and `[Unknown Error]` are words, `N/A161262` is two glued values.
    """
    if len(text) > _WORD_CHARACTERS_MAX:
        return None
    bare = text.strip().strip("[]").strip().lower()
    found = _WORDS.get(bare)
    if found is None and bare.endswith(")") and not bare.startswith("("):
        found = _WORDS.get(bare.partition("(")[0].strip())
    return found
