"""Who speaks in a line of a log that many processes write into."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[ -/]?[@-~]")
_PREFIX = re.compile(
    r"(?:(?P<tool>[\w.-]{1,128}) \[std(?:err|out)\] {1,4})?"
    r"(?:std(?:err|out): {1,4})?"
    r"(?:(?P<label>\d{1,7}|[A-Za-z][\w.-]{0,62}): {1,4}(?=\S))?"
    r"(?:\[(?P<what>[A-Za-z_]{1,20})(?P<number>\d{1,7})\]: ?)?"
)


class Speaker(Struct, frozen=True, gc=False):
    """The words before a line.

    key         tells speakers of one log apart, "" where a line has no prefix
    rank        global rank: `[rank3]:` of torch
    task        task of `srun --label`: the rank in jobs of one task a GPU, not in others
    local_rank  `[default3]:` of torchrun: counts within a node that the line does not name
    host        `vm-07-14:` of pdsh
    """

    key: str = ""
    rank: int | None = None
    task: int | None = None
    local_rank: int | None = None
    host: str | None = None


NOBODY = Speaker()


def without_colours(text: str) -> str:
    """Without terminal escapes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


@lru_cache(maxsize=4_096)
def of_prefix(prefix: bytes) -> Speaker:
    """The speaker of a prefix that stands before a step line."""
    return split(prefix.decode("ascii", "replace") + "x")[0]


def split(text: str) -> tuple[Speaker, str]:
    """The speaker and the rest of the line."""
    if text[:1] == " ":
        return NOBODY, text
    found = _PREFIX.match(text)
    if found is None or found.end() == 0:
        return NOBODY, text
    label, what = found["label"], found["what"]
    if label is not None and what is None and not label.isdecimal() and _is_word(label):
        cut = found.start("label")
        return NOBODY, text[cut:]  # "TypeError: ..." is no speaker
    return _speaker(found[0], label, what, found["number"]), text[found.end() :]


@lru_cache(maxsize=4_096)
def _speaker(words: str, label: str | None, what: str | None, digits: str | None) -> Speaker:
    number = int(digits) if digits is not None else None
    task = int(label) if label is not None and label.isdecimal() else None
    rank = number if what == "rank" else None
    return Speaker(
        key=_key(rank, task, words),
        rank=rank,
        task=task,
        local_rank=number if what is not None and what != "rank" else None,
        host=label if task is None else None,
    )


def _key(rank: int | None, task: int | None, words: str) -> str:
    number = rank if rank is not None else task
    return f"#{number}" if number is not None else words.strip()


@lru_cache(maxsize=4_096)
def _is_word(label: str) -> bool:
    return not any(char.isdigit() for char in label) or label.endswith(("Error", "Exception"))
