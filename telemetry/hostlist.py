"""Slurm's host lists, "n[001-004,7],login1", into names and never into more than a bound. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

NODES_MAX = 65_536
TEXT_MAX = 1_000_000
DIGITS_MAX = 9
NOBODY = frozenset({"", "(null)", "none", "none assigned", "n/a", "(none)"})

_PART = re.compile(r"[^\[\]]++|\[[0-9,\-]*+\]")
_RANGE = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})(?:-([0-9]{{1,{DIGITS_MAX}}}))?")
_NAME = re.compile(r"[A-Za-z0-9_.\-:]{1,253}")


def expand(text: str, nodes_max: int = NODES_MAX) -> list[str] | str:
    """The names in the order they are written, each once; why there are none where it is no list.

    "(null)" and "None assigned" are nobody. Digits keep their width: n[08-10] is n08, n09, n10.
    """
    bare = text.strip()
    if bare.lower() in NOBODY:
        return []
    if len(bare) > TEXT_MAX:
        return f"host list of {len(bare)} characters"
    names: dict[str, None] = {}
    for word in _words(bare):
        found = _expanded(word, nodes_max - len(names))
        if isinstance(found, str):
            return found
        names.update(dict.fromkeys(found))
    return list(names)


def _words(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    start, depth = 0, 0
    for at, sign in enumerate(text):
        if sign == "[":
            depth += 1
        elif sign == "]":
            depth -= 1
        elif sign == "," and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _expanded(word: str, room: int) -> list[str] | str:
    parts = _PART.findall(word)
    if not parts or "".join(parts) != word:
        return f"host list with {word[:80]!r}"
    choices: list[list[str]] = []
    count = 1
    for part in parts:
        found = _numbers(part[1:-1], room) if part.startswith("[") else [part]
        if isinstance(found, str):
            return found
        count *= len(found)
        if count > room:
            return f"host list of more than {NODES_MAX} nodes"
        choices.append(found)
    names = ["".join(pieces) for pieces in product(*choices)]
    wrong = next((name for name in names if _NAME.fullmatch(name) is None), None)
    return names if wrong is None else f"host list with {wrong[:80]!r}"


def _numbers(text: str, room: int) -> list[str] | str:
    found: list[str] = []
    for piece in text.split(","):
        hit = _RANGE.fullmatch(piece)
        if hit is None:
            return f"host list with the range {piece[:40]!r}"
        first, last = hit[1], hit[2] or hit[1]
        if int(last) < int(first):
            return f"host list with the range {piece[:40]!r}"
        if int(last) - int(first) >= room - len(found):
            return f"host list of more than {NODES_MAX} nodes"
        width = len(first)
        found += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return found
