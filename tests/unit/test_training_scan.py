"""The prefilter of training logs: it may look at a line too many, never at one too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.training import scan


@pytest.mark.parametrize("word", scan.WORDS)
@pytest.mark.parametrize("place", ["start", "middle", "end", "only"])
def test_a_line_with_any_of_the_words_is_looked_at(word: bytes, place: str) -> None:
    line = {"start": word + b" xyz", "middle": b"ab " + word + b" cd", "end": b"abc" + word,
            "only": word}[place]  # fmt: skip
    block = b"nothing here\n" + line + b"\nnothing there\n"
    assert [len(b"nothing here\n")] == list(scan.starts(block))
    assert scan.worth_reading(line)


@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
            st.sampled_from(scan.WORDS),
        ),
        max_size=12,
    )
)
def test_no_line_is_missed_and_each_comes_once_in_order(lines: list[bytes]) -> None:
    block = b"\n".join(lines)
    found = list(scan.starts(block))
    assert found == sorted(set(found))
    wanted, at = [], 0
    for line in lines:
        wanted += [at] if scan.worth_reading(line) else []
        at += len(line) + 1
    assert set(wanted) <= set(found)
    assert all(at == 0 or block[at - 1 : at] == b"\n" for at in found)
