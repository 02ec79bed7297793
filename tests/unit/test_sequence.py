"""Numbers of a stream against a list of everything that was seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.sequence import WINDOW, SequenceWindow

STEPS = st.lists(
    st.one_of(st.just(1), st.integers(-20, 20), st.integers(-WINDOW - 2, WINDOW + 2)),
    max_size=120,
)


class Listed:
    """The rule, by keeping every number."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def take(self, seq: int) -> bool:
        fresh = not self.seen or (seq not in self.seen and seq > max(self.seen) - WINDOW)
        self.seen += [seq] if fresh else []
        return fresh

    def bits(self) -> int:
        newest = max(self.seen)
        return sum(1 << newest - seq for seq in self.seen if newest - seq < WINDOW)


@given(first=st.integers(0, 10_000), steps=STEPS)
def test_a_number_is_new_once(first: int, steps: list[int]) -> None:
    window, listed, seq = SequenceWindow(), Listed(), first
    for step in [0, *steps]:
        seq = max(0, seq + step)
        assert window.take(seq) is listed.take(seq)
        assert window.has(seq) or seq <= window.highest - WINDOW
    assert (window.highest, window.bits) == (max(listed.seen), listed.bits())


@given(before=STEPS, after=STEPS)
def test_a_window_that_was_saved_goes_on_alike(before: list[int], after: list[int]) -> None:
    window, seq = SequenceWindow(), 5_000
    for step in before:
        seq = max(0, seq + step)
        window.take(seq)
    restored = SequenceWindow(window.highest, window.bits, window.lost)
    for step in after:
        seq = max(0, seq + step)
        assert window.take(seq) is restored.take(seq)
    assert (window.highest, window.bits, window.lost) == (
        restored.highest, restored.bits, restored.lost,
    )  # fmt: skip


def test_a_hole_is_lost_until_somebody_fills_it() -> None:
    window = SequenceWindow()
    for seq in (10, 11, 14):
        window.take(seq)
    assert window.lost == 2
    assert window.take(12)
    assert window.lost == 1
    assert not window.take(12)


def test_a_leap_beyond_the_window_forgets_the_numbers_in_a_row_before_it() -> None:
    window = SequenceWindow()
    for seq in range(5):
        window.take(seq)
    window.take(5 + WINDOW)
    assert window.bits == 1
    assert not window.take(4)
