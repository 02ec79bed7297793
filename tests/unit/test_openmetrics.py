"""OpenMetrics dumps: runs of a series, blanks, labels, and what damage costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import openmetrics
from collectors.openmetrics import OpenMetricsParser, Run
from collectors.series import Series, read_labels, read_series
from telemetry.records import Rejected

START_S = 1_772_020_800
GPU = 'DCGM_FI_DEV_GPU_TEMP{Hostname="n1",UUID="GPU-1",gpu="0"}'
POWER = 'DCGM_FI_DEV_POWER_USAGE{Hostname="n1",UUID="GPU-1",gpu="0"}'
NIC = 'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1",instance="n1:9100"}'

Sample = tuple[str, float, float]


def read(data: bytes, piece: int = 1 << 20) -> tuple[list[Run], list[Rejected], OpenMetricsParser]:
    parser = OpenMetricsParser("gpu.om")
    found: list[Run | Rejected] = []
    for at in range(0, len(data), piece):
        found += parser.feed(data[at : at + piece])
    found += parser.finish()
    runs = [one for one in found if isinstance(one, Run)]
    return runs, [one for one in found if isinstance(one, Rejected)], parser


def samples(runs: list[Run]) -> list[Sample]:
    return [
        (run.series.metric.name if run.series.metric is not None else "", at, value)
        for run in runs
        for at, value in zip(run.times.tolist(), run.values.tolist(), strict=True)
    ]


def lines(series: str, values: list[str], step_s: float = 15.0) -> list[str]:
    return [f"{series} {value} {START_S + step_s * at}" for at, value in enumerate(values)]


def text(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def one(line: str) -> float:
    runs, rejected, _ = read(text(line))
    assert not rejected
    return float(runs[0].values[0])


def test_a_run_of_one_series_is_read_whole_and_exactly() -> None:
    values = [repr(0.1 * at) for at in range(300)]
    runs, rejected, parser = read(text("# TYPE x gauge", *lines(GPU, values), "# EOF"))
    assert [float(value) for value in values] == runs[0].values.tolist()
    assert [START_S + 15.0 * at for at in range(300)] == runs[0].times.tolist()
    assert (1, [], 300) == (len(runs), rejected, parser.samples)


def test_the_next_series_with_the_same_stamps_shares_their_array() -> None:
    runs, _, _ = read(text(*lines(GPU, ["1"] * 20), *lines(POWER, ["2"] * 20)))
    assert runs[0].times is runs[1].times


def test_the_next_series_with_other_stamps_does_not() -> None:
    runs, _, _ = read(text(*lines(GPU, ["1"] * 20), *lines(POWER, ["2"] * 20, step_s=30.0)))
    assert START_S + 30.0 == runs[1].times[1]


@pytest.mark.parametrize("piece", [1, 7, 100, 4096])
def test_the_size_of_the_pieces_does_not_matter(piece: int) -> None:
    data = text(*lines(GPU, ["61"] * 30), "rubbish", *lines(POWER, ["600"] * 30))
    assert samples(read(data)[0]) == samples(read(data, piece)[0])
    assert read(data)[1] == read(data, piece)[1]


def test_series_in_turn_are_read_as_well_as_series_in_runs() -> None:
    rows = [row for pair in zip(lines(GPU, ["61"] * 9), lines(POWER, ["600"] * 9), strict=True)
            for row in pair]  # fmt: skip
    assert 18 == len(samples(read(text(*rows))[0]))


def test_a_bad_line_costs_only_itself_and_names_its_place() -> None:
    rows = lines(GPU, ["61"] * 9)
    rows[4] = f"{GPU} 61"
    runs, rejected, _ = read(text("# HELP", *rows))
    assert 8 == len(samples(runs))
    assert [("no time stamp", "gpu.om:6")] == [(row.reason, row.place) for row in rejected]


@pytest.mark.parametrize(
    "value",
    ["9223372036854775792", "9223372036854775795", "9.223372036854776e+18", "2147483632",
     "2147483635", "140737488355328", "140737488355331", "4294967295"],
)  # fmt: skip
def test_blanks_are_null_and_counted(value: str) -> None:
    runs, _, parser = read(text(*lines(GPU, ["61", value])))
    assert [False, True] == np.isnan(runs[0].values).tolist()
    assert {("gpu_temperature_celsius", "blank"): 1} == parser.blanked


def test_a_byte_counter_may_be_as_large_as_a_gauge_s_blank() -> None:
    assert 2147483632.0 == one(f"{NIC} 2147483632 {START_S}")
    assert math.isnan(one(f"{NIC} 9223372036854775794 {START_S}"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [("NaN", "nan"), ("900", "range"), ("-300", "range"), ("+Inf", "range"),
     ("ERROR - FAILED TO CONVERT TO STRING", "text"), ("1_0", "text")],
)  # fmt: skip
def test_junk_is_null_and_counted_by_reason(value: str, reason: str) -> None:
    runs, rejected, parser = read(text(*lines(GPU, ["61", value])))
    values = [value for run in runs for value in run.values.tolist()]
    assert (61.0, True, []) == (values[0], math.isnan(values[1]), rejected)
    assert {("gpu_temperature_celsius", reason): 1} == parser.blanked


def test_an_exemplar_is_no_part_of_the_sample() -> None:
    assert 61.0 == one(f'{GPU} 61 {START_S} # {{trace_id="1"}} 1 1')


@pytest.mark.parametrize("stamp", ["0", "-5", "NaN", "1e300", "soon"])
def test_a_stamp_that_is_no_time_rejects_its_line(stamp: str) -> None:
    runs, rejected, _ = read(text(f"{GPU} 61 {stamp}", f"{GPU} 62 {START_S}"))
    assert [62.0] == [value for _, _, value in samples(runs)]
    assert 1 == len(rejected)


def test_metrics_that_nobody_knows_are_passed_over() -> None:
    runs, rejected, _ = read(text(*lines('up{instance="n1"}', ["1"] * 50), *lines(GPU, ["61"])))
    assert (1, []) == (len(samples(runs)), rejected)


def test_a_name_that_begins_like_a_known_one_is_another() -> None:
    assert [] == read(text(f'DCGM_FI_DEV_GPU_TEMPERATURE{{gpu="0"}} 61 {START_S}'))[0]


@pytest.mark.parametrize(
    ("name", "labels", "entity"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", 'gpu="0",UUID="GPU-a"', "GPU-a"),
        ("DCGM_FI_DEV_GPU_TEMP", 'gpu="0",uuid="GPU-a"', "GPU-a"),
        ("DCGM_FI_DEV_GPU_TEMP", 'gpu="0",gpu_uuid="GPU-a",GPU_I_ID="7"', "GPU-a/7"),
        ("DCGM_FI_DEV_GPU_TEMP", 'gpu="3"', "gpu3"),
        ("DCGM_FI_DEV_GPU_TEMP", 'device="nvidia3"', "gpu3"),
        ("node_infiniband_link_downed_total", 'device="mlx5_0",port="1"', "mlx5_0/1"),
        ("node_ethtool_received_prio3_pause", 'device="eth0"', "eth0"),
        ("node_load1", "", "node"),
    ],
)
def test_the_entity_comes_from_the_labels(name: str, labels: str, entity: str) -> None:
    series = read_series(name, labels.encode())
    assert isinstance(series, Series)
    assert entity == series.entity


def test_a_gpu_without_a_name_is_rejected_line_by_line() -> None:
    runs, rejected, _ = read(text(*lines('DCGM_FI_DEV_GPU_TEMP{Hostname="n1"}', ["61"] * 3)))
    assert ([], 3) == (runs, len(rejected))


def test_labels_lose_their_escapes_and_may_hold_anything() -> None:
    said = rb'a="x\"y\\z\nw",b="},{ 1 2",c="",'
    assert {"a": 'x"y\\z\nw', "b": "},{ 1 2", "c": ""} == read_labels(said)
    assert read_labels(b'a="open') is None
    value = one(f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",pod="a}} 5 6",x="\\"}} 7 8"}} 61 {START_S}')
    assert 61.0 == value


def test_a_loss_that_is_no_number_is_told_from_a_missing_one() -> None:
    runs, _, _ = read(text(*lines('training_loss{job_id="1"}', ["2.5", "NaN"])))
    assert ("loss", [2.5, math.inf]) == (runs[0].series.column, runs[0].values.tolist())


def test_a_line_without_an_end_is_kept_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmetrics, "FEED_BYTES", 1 << 16)
    data = b"x" * 1_000_000 + b"\n" + text(*lines(GPU, ["61"]))
    runs, rejected, _ = read(data, 1 << 16)
    assert 1 == len(samples(runs))
    assert ["line too long"] == [row.reason for row in rejected]


def test_a_file_that_was_cut_loses_only_its_torn_line() -> None:
    parser = OpenMetricsParser("x")
    data = text(*lines(GPU, ["61", "62"]))[:-5]
    found = [*parser.feed(data), *parser.finish(whole=False)]
    assert [61.0] == [value for _, _, value in samples([r for r in found if isinstance(r, Run)])]


WHOLE = text(*lines(GPU, ["61"] * 12), *lines(POWER, ["600"] * 12), *lines(NIC, ["5"] * 12))


@given(st.binary(max_size=2_000))
def test_no_bytes_raise(data: bytes) -> None:
    read(data)


@given(
    at=st.integers(0, len(WHOLE)),
    junk=st.one_of(st.binary(max_size=8), st.sampled_from([b"\0", b"\xff\xfe", b'"', b"{", b"\\"])),
    cut=st.integers(0, 40),
)
def test_after_damage_nothing_more_is_lost(at: int, junk: bytes, cut: int) -> None:
    damaged = WHOLE[:at] + junk + WHOLE[at + cut :]
    broken = range(WHOLE.count(b"\n", 0, at), WHOLE.count(b"\n", 0, at + cut) + 1)
    found = samples(read(damaged)[0])
    rows = samples(read(WHOLE)[0])
    kept = [row for number, row in enumerate(rows) if number not in broken]
    for row in kept:
        assert row in found
