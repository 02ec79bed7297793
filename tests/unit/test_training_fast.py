"""Lines that are read by a learned layout say what they say when each is read by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.training import bars, megatron, rows, titan
from collectors.training.model import Step
from collectors.training.parser import TrainingParser

TITAN = (
    b"step: %2d  loss: %8.5f  grad_norm: %7.4f  memory: 66.91GiB(37.51%%)  tps: %d,%03d"
    b"  tflops: 314.71  mfu: 13.99%%"
)
COLOURED = (
    b"\x1b[31mstep: %2d  \x1b[32mloss: %8.5f  \x1b[33mgrad_norm: %7.4f  \x1b[34mtps: %d,%03d"
    b"  \x1b[35mmfu: 13.99%%\x1b[39m"
)
DATED = b"[titan] 2026-02-24 19:46:%02d,508 - root - INFO - "

prefixes = st.sampled_from(
    [b"", b"", b"[rank0]:", b"[rank3]:", b"vm-07: ", b"3: ", b"1: [rank3]:", b"stdout: ", b"std: ",
     b"step: ", b"OSError: ", b" ", b"\xff", b"validate "]
)  # fmt: skip
ends = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b" \n", b"  lr: 1e-5\n", b" x\n", b"\x00\n",
                        b"  loss: nan\n", b"  elapsed_time: 5\n"])  # fmt: skip


@st.composite
def titan_lines(draw: st.DrawFn) -> bytes:
    number = draw(st.integers(0, 40))
    body = draw(st.sampled_from([TITAN, COLOURED])) % (
        number, draw(st.floats(-1.0, 99.0)), draw(st.sampled_from([0.0, 0.5, 26.6])),
        draw(st.integers(0, 99)), draw(st.integers(0, 999)),
    )  # fmt: skip
    date = DATED % draw(st.integers(0, 61)) if draw(st.booleans()) else b""
    return draw(prefixes) + date + body + draw(ends)


def read(log: bytes) -> tuple[list[str], int, int]:
    parser = TrainingParser("x.log", clock_s=1_772_020_800.0)
    said = [repr(one) for one in (*parser.feed(log), *parser.finish())]  # NaN equals nothing
    return said, parser.counted_up, parser.undated


def read_singly(log: bytes) -> tuple[list[str], int, int]:
    with pytest.MonkeyPatch.context() as patch:
        for layout in (megatron.Layout, titan.Layout):
            patch.setattr(layout, "match", lambda *_: None)
        patch.setattr(bars, "PLAIN", re.compile(rb"(?!)"))
        patch.setattr(rows.Layout, "read", lambda _, block, position: (None, position))
        return read(log)


@settings(max_examples=60)
@given(st.lists(titan_lines(), min_size=2, max_size=12))
def test_torchtitans_lines_say_the_same_by_their_layout_as_singly(lines: list[bytes]) -> None:
    assert read(b"".join(lines)) == read_singly(b"".join(lines))


bar_pieces = st.builds(
    lambda label, name, n, clock, shown, end: b"%s%s  7%%|#   | %d/99 [%s<01:00%s" % (
        label, name, n, clock, shown) + end,
    st.sampled_from([b"", b"", b"[rank1]:", b"[default3]: ", b"std", b"7: "]),
    st.sampled_from([b"", b"", b"Epoch 0:", b"Train:", b"Validation:", b"Epoch1:"]),
    st.integers(0, 6), st.sampled_from([b"00:07", b"00:19", b"01:00:31", b"1:2:3:4", b"0"]),
    st.sampled_from([b", 10.13s/it]", b", 3.1it/s]", b", ?it/s]", b"]", b"", b", loss=3.1]",
                     b", loss=nan, global_step=4.0]", b", zoom=Killed]"]),
    st.sampled_from([b"\r", b"\r", b"\r\r", b"\n", b"\r\n", b"{'loss': 0.5}\n", b"   \r",
                     b" at 2026-02-24 19:46:17\r", b"\rTraceback (most recent call last):\n"]),
)  # fmt: skip
others = st.sampled_from([b"\r", b"\n", b"words 2026-02-24 19:46:17 2026-02-24 19:46:18\r",
                          b"KeyError: 'x'\n", b"{'loss': 0.25}\r", b"OSError: x\r"])  # fmt: skip


@settings(max_examples=150)
@given(st.lists(st.one_of(bar_pieces, bar_pieces, bar_pieces, others), min_size=1, max_size=14))
def test_bars_say_the_same_one_after_the_other_as_singly(pieces: list[bytes]) -> None:
    assert read(b"".join(pieces)) == read_singly(b"".join(pieces))


row_pieces = st.builds(
    lambda before, loss, norm, name, end: before + b"{'loss': %b, 'grad_norm': %b, '%b': 5e-05}" % (
        loss, norm, name) + end,
    st.sampled_from([b"", b"", b"", b" ", b"[rank1]: ", b"\r", b"  7%|#   | 3/99 [00:07<01:00]"]),
    st.sampled_from([b"0.25", b"1.5", b"nan", b"-inf", b"1e-3", b"1.2.3", b"Infinity", b"1_0"]),
    st.sampled_from([b"0.0", b"nan", b"inf", b"2"]),
    st.sampled_from([b"learning_rate", b"learning_rate", b"eval_loss", b"step", b"OSError: x",
                     b"loss", b"train_loss", b"train_runtime"]),
    st.sampled_from([b"\n", b"\n", b" \n", b"\r", b"\r\n", b" x\n", b"{'loss': 7}\n", b"",
                     b"\x00\n"]),
)  # fmt: skip


@settings(max_examples=150)
@given(st.lists(st.one_of(row_pieces, row_pieces, bar_pieces, others), min_size=1, max_size=14))
def test_rows_say_the_same_by_their_layout_as_singly(pieces: list[bytes]) -> None:
    assert read(b"".join(pieces)) == read_singly(b"".join(pieces))


def test_a_layout_is_learned_from_one_line_and_reads_the_next() -> None:
    layout = titan.Layout()
    lines = [TITAN % (at, 7.5, 0.0, 10, 50) + b"\n" for at in (4, 5)]
    layout.learn(lines[0], 0)
    found = layout.match(lines[1], 0)
    assert found is not None
    values = layout.values(found.groups()[6:])
    assert values is not None
    step = layout.step(5, values)
    assert step == Step("torchtitan", 5, loss=7.5, throughput=10_050.0, throughput_unit="tokens/s",
                        more={"tokens_per_s": 10_050.0, "tflops_per_gpu": 314.71,
                              "mfu_percent": 13.99})  # fmt: skip


def test_a_step_that_another_rank_has_printed_is_dropped_by_its_layout_as_singly() -> None:
    log = b"".join(
        DATED % at + TITAN % (at, 7.5 - at, 0.5, 10, rank) + b"\n"
        for at in range(4)
        for rank in range(8)
    )
    assert len(read(log)[0]) == 4
    assert read(log) == read_singly(log)


def test_numbers_with_commas_and_exponents_are_read_as_singly() -> None:
    shown = (b"1e-05", b"1,5e2", b"1e,5", b"1e00001", b"1,000", b"1.5.2", b"+2", b"-", b"1e999")
    lines = b"".join(
        b"step: %2d  loss: %b  grad_norm: %b  tps: 1,000\n" % (at, value, value)
        for at, value in enumerate((b"1.5", *shown, b"1.5"))
    )
    assert read(lines) == read_singly(lines)


def test_values_that_are_no_plain_numbers_are_read_as_singly() -> None:
    line = (
        b" iteration %8d/     100 | elapsed time per iteration (ms): 544%b | lm loss: 1.8E+00 |\n"
    )
    odd = (b"4.9", b"4\r", b"4.9 ", b"1_0", b"\xff", b"1|2", b"\t", b"nan")
    log = b"".join(line % (at, value) for at, value in enumerate((b"4.9", *odd, b"4.9")))
    assert read(log) == read_singly(log)
