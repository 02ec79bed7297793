"""Samples that come by series go out by time, whole and exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import spill
from collectors.frames import FrameMaker, StepMaker
from collectors.names import natural
from collectors.spill import Block, Column, FloatArray, Spill, Target, snap_interval

T0 = 1_772_020_800.0
N1 = Target("n1", "gpu")
N2 = Target("n2", "gpu")


def temperature(gpu: int) -> Column:
    return Column("gpu", "gpu_temperature_celsius", f"GPU-{gpu}")


def power(gpu: int) -> Column:
    return Column("gpu", "gpu_power_watts", f"GPU-{gpu}")


def times(*offsets: float) -> FloatArray:
    return T0 + np.array(offsets)


def filled(*runs: tuple[Target, Column, FloatArray, list[float]]) -> Spill:
    made = Spill()
    for target, column, at, values in runs:
        made.add(target, column, at, np.array(values, dtype=np.float64))
    made.flush()
    return made


def samples(made: Spill) -> list[tuple[Target, Column, float, float]]:
    return [
        (block.target, column, at, value)
        for _, blocks in made.chunks()
        for block in blocks
        for at, row in zip(block.times.tolist(), block.values.tolist(), strict=True)
        for column, value in zip(made.columns(block.target), row, strict=True)
        if not np.isnan(value)
    ]


def test_series_with_different_stamps_meet_in_one_block() -> None:
    made = filled(
        (N1, temperature(0), times(0, 15, 30), [1, 2, 3]), (N1, power(0), times(15, 45), [8, 9])
    )
    (block,) = next(iter(made.chunks()))[1]
    assert [0.0, 15.0, 30.0, 45.0] == (block.times - T0).tolist()
    expected = [[1, np.nan], [2, 8], [3, np.nan], [np.nan, 9]]
    np.testing.assert_array_equal(np.array(expected), block.values)


def test_stretches_follow_each_other_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "CHUNK_SAMPLES", 50)
    at = times(*range(0, 15_000, 15))
    made = filled((N1, temperature(0), at, list(range(1_000))), (N2, power(1), at, [5.0] * 1_000))
    found = [(end, block.times[0], block.times[-1]) for end, row in made.chunks() for block in row]
    assert len(found) > 40
    assert all(first <= last < end for end, first, last in found)
    assert 2_000 == len(samples(made))
    assert samples(made) == samples(made)


def test_stamps_out_of_order_are_put_in_order_and_the_later_of_two_wins() -> None:
    made = filled((N1, temperature(0), times(30, 0, 15, 0), [3, 1, 2, 7]))
    assert [7, 2, 3] == [row[3] for row in samples(made)]


def test_a_series_in_many_short_runs_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "GATHERED_SAMPLES_MAX", 10)
    made = filled(*((N1, temperature(0), times(15 * at), [float(at)]) for at in range(100)))
    assert [float(at) for at in range(100)] == [row[3] for row in samples(made)]


def test_the_interval_is_the_most_common_gap_of_a_source() -> None:
    jitter = np.random.default_rng(1).normal(0.0, 0.2, 60)
    made = filled(
        (N1, temperature(0), T0 + 15.0 * np.arange(60) + jitter, [1.0] * 60),
        (Target("n1", "nic"), Column("nic", "x", "mlx5_0/1"), times(0, 60, 120, 300), [1] * 4),
        (Target("n9", "host"), Column("node", "y", "node"), times(5), [1]),
    )
    assert {"gpu": 15.0, "nic": 60.0} == made.intervals()


def test_two_sources_with_the_same_stamps_both_have_an_interval() -> None:
    at = times(*range(0, 600, 30))
    nic = Target("n1", "nic")
    made = filled(
        (N1, temperature(0), at, [1.0] * 20), (nic, Column("nic", "x", "y"), at, [1] * 20)
    )
    assert {"gpu": 30.0, "nic": 30.0} == made.intervals()


@pytest.mark.parametrize(
    ("gap_s", "usual_s"), [(0.9, 1), (14.2, 15), (31, 30), (58, 60), (290, 300), (3_601.2, 3_601)]
)
def test_a_gap_is_snapped_to_a_usual_interval(gap_s: float, usual_s: float) -> None:
    assert usual_s == snap_interval(gap_s)


runs_of_series = st.lists(
    st.tuples(
        st.sampled_from([N1, N2]), st.integers(0, 2),
        st.lists(st.integers(0, 2_000), min_size=1, max_size=30),
    ),
    max_size=8,
)  # fmt: skip


@given(runs_of_series)
def test_whatever_goes_in_comes_out_once_in_order(
    rows: list[tuple[Target, int, list[int]]],
) -> None:
    """A plain dict is the oracle: the last value of a stamp wins."""
    expected: dict[tuple[Target, Column, float], float] = {}
    made = Spill()
    for number, (target, gpu, offsets) in enumerate(rows):
        values = [float(number * 100 + at) for at in range(len(offsets))]
        made.add(target, temperature(gpu), times(*offsets), np.array(values))
        for offset, value in zip(offsets, values, strict=True):
            expected[target, temperature(gpu), T0 + offset] = value
    made.flush()
    found = samples(made)
    assert expected == {row[:3]: row[3] for row in found}
    assert len(expected) == len(found)
    for target in (N1, N2):
        stamps = [row[2] for row in found if row[0] == target]
        assert stamps == sorted(stamps)


def frame_rows(columns: list[Column], values: list[list[float]]) -> list[dict[str, object]]:
    block = Block(N1, times(*range(0, 15 * len(values), 15)), np.array(values))
    return [dict(frame.metrics) for frame in FrameMaker(N1, columns).frames(block)]


def test_a_frame_has_one_value_or_null_per_entity_of_each_metric() -> None:
    columns = [power(10), temperature(2), temperature(10)]
    assert [
        {"gpu_temperature_celsius": [61.0, 62.0], "gpu_power_watts": [None, 600.0]},
        {"gpu_temperature_celsius": [None, 63.0], "gpu_power_watts": [None, 601.0]},
    ] == frame_rows(columns, [[600.0, 61.0, 62.0], [601.0, np.nan, 63.0]])


def test_a_frame_names_its_entities_in_the_order_of_its_values() -> None:
    block = Block(N1, times(0, 15), np.array([[1.0, 2.0], [3.0, 4.0]]))
    frames = list(FrameMaker(N1, [temperature(10), temperature(2)]).frames(block))
    assert {"gpu": ["GPU-2", "GPU-10"]} == frames[0].entities
    assert [0, 1] == [frame.seq for frame in frames]
    assert [2.0, 1.0] == frames[0].metrics["gpu_temperature_celsius"]


def test_two_device_classes_share_a_frame() -> None:
    load = Column("node", "host_load1", "node")
    bytes_ = Column("nic", "nic_receive_bytes_total", "mlx5_0/1")
    block = Block(N1, times(0), np.array([[3.0, 7.0]]))
    (frame,) = FrameMaker(N1, [load, bytes_]).frames(block)
    assert {"nic": ["mlx5_0/1"], "node": ["node"]} == frame.entities
    assert {"nic_receive_bytes_total": [7.0], "host_load1": [3.0]} == frame.metrics


def test_two_exporters_of_one_source_are_one_scrape() -> None:
    nan = np.nan
    rows = np.array([[1, nan], [nan, 2], [3, nan], [nan, 4], [5, 6], [7, 8], [nan, 9]])
    block = Block(N1, times(0, 4, 15, 19, 30, 33, 45), rows)
    found = list(FrameMaker(N1, [temperature(0), power(0)], 15.0).frames(block))
    assert [(0, 1, 2), (15, 3, 4), (30, 5, 6), (33, 7, 8), (45, None, 9)] == [
        (one.at - T0, *(value for row in one.metrics.values() for value in row)) for one in found
    ]
    assert [0, 1, 2, 3, 4] == [one.seq for one in found]


def test_names_are_sorted_as_people_count() -> None:
    assert ["mlx5_2/1", "mlx5_10/1"] == sorted(["mlx5_10/1", "mlx5_2/1"], key=natural)


def test_a_step_ends_when_its_number_rises() -> None:
    columns = [Column("", name, "") for name in ("step", "step_time_s", "loss")]
    target = Target("", "training", "7")
    rows = [[1, 5.0, 2.0], [1, 5.0, 2.0], [2, 6.0, np.inf], [np.nan, 6.0, 1.0], [3, np.nan, 1.5]]
    block = Block(target, times(0, 15, 30, 45, 60), np.array(rows))
    found = list(StepMaker(target, columns).steps(block))
    assert [(0.0, [1]), (30.0, [2]), (60.0, [3])] == [(one.at - T0, one.step) for one in found]
    assert ([None], [["loss"]]) == (found[1].loss, found[1].nonfinite)
    assert ([], [1.5], "7") == (found[2].step_time_s, found[2].loss, found[2].job)


def test_gauges_without_a_step_number_make_no_step() -> None:
    target = Target("", "training", "7")
    maker = StepMaker(target, [Column("", "loss", "")])
    assert [] == list(maker.steps(Block(target, times(0, 15), np.ones((2, 1)))))


def test_ranks_share_a_record_of_their_node_and_only_those_that_moved_are_in_it() -> None:
    target = Target("n1", "training", "7")
    columns = [Column("", name, rank) for rank in ("10", "9") for name in ("step", "loss")]
    rows = np.array([[1, 2.0, 1, np.nan], [2, 2.5, 1, 9.9], [2, 2.5, 1e300, 1.0]])
    found = list(StepMaker(target, columns).steps(Block(target, times(0, 15, 30), rows)))
    assert [("n1", [9, 10], [1, 1], [None, 2.0]), ("n1", [10], [2], [2.5])] == [
        (one.node, one.ranks, one.step, one.loss) for one in found
    ]


def test_columns_and_targets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "COLUMNS_MAX", 2)
    monkeypatch.setattr(spill, "TARGETS_MAX", 1)
    made, one = Spill(), np.ones(1)
    assert [True, True, False] == [made.add(N1, temperature(at), times(0), one) for at in range(3)]
    assert made.add(N1, temperature(0), times(15), one)
    assert not made.add(N2, temperature(0), times(0), one)
