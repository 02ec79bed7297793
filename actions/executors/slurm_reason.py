"""The reason of our drains, by which we know them again: `nodewarden:gpu_lost:3f2a...`.

One line, no blanks, no quotes. Ours is only what reads so from its first to its last character: a
note that somebody added makes it theirs.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

REASON_MAX = 128  # characters; `sinfo -R` shows the first 20
PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,31}")
_PART_MAX = 40
_UNUSABLE = re.compile(r"[^A-Za-z0-9_.\-]+")
_OURS = re.compile(
    r"(?P<prefix>[A-Za-z][A-Za-z0-9_\-]{0,31}):(?P<fault>[A-Za-z0-9_.\-]{1,40})"
    r":(?P<incident>[A-Za-z0-9_.\-]{1,40})"
)


class Owned(msgspec.Struct, frozen=True):
    """What a drain of ours says of itself."""

    prefix: str
    fault: str
    incident: str


def written(prefix: str, fault: str, incident: str) -> str:
    """The reason of a drain; whatever has no place in it becomes an underscore."""
    text = f"{prefix}:{part(fault) or 'unknown'}:{part(incident) or 'none'}"
    assert len(text) <= REASON_MAX, text
    return text


def owned(text: str, prefixes: Collection[str]) -> Owned | None:
    """What the reason says, where one of our prefixes, of today or of before, made it."""
    hit = _OURS.fullmatch(text)
    if hit is None or hit["prefix"] not in prefixes:
        return None
    return Owned(hit["prefix"], hit["fault"], hit["incident"])


def part(text: str) -> str:
    """The text as it stands in a reason."""
    return _UNUSABLE.sub("_", text)[:_PART_MAX]
