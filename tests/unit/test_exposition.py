"""A scrape's text: values, blanks, broken lines, labels; and nothing that makes it raise."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.exporter_forms import exporter_objects
from collectors.exposition import Sample, ScrapeParser, stamp_s
from collectors.missing import missing_reason
from collectors.names import NodeNames
from collectors.series import read_labels, workload_of
from telemetry.records import Rejected

GPU = 'gpu="0",UUID="GPU-1",Hostname="n1"'


def scrape(*lines: str, parser: ScrapeParser | None = None) -> list[Sample | Rejected]:
    parser = parser or ScrapeParser("test")
    return list(parser.read([("\n".join(lines) + "\n").encode()]))


def one(line: str) -> Sample:
    (said,) = scrape(line)
    assert isinstance(said, Sample)
    return said


@pytest.mark.parametrize(
    ("word", "reason"),
    [("9223372036854775792", "blank"), ("9223372036854775793", "not found"),
     ("9223372036854775794", "not supported"), ("9223372036854775795", "no permission"),
     ("9.223372036854776e+18", "blank"), ("2147483632", "blank"), ("2147483635", "no permission"),
     ("140737488355328.0", "blank"), ("140737488355330", "not supported"),
     ("140737488355331.0", "no permission"), ("4294967295", "blank"), ("NaN", "nan"),
     ("+Inf", "range"), ("N/A", "not available"), ("[Not Supported]", "not supported"),
     ("ERROR - FAILED TO CONVERT TO STRING", "error"), ("900", "range")],
)  # fmt: skip
def test_a1_a_blank_is_missing_and_counted_by_its_reason(word: str, reason: str) -> None:
    parser = ScrapeParser("test")
    (said,) = scrape(f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} {word}", parser=parser)

    assert isinstance(said, Sample)
    assert (None, reason) == (said.value, said.missing)
    assert {("gpu_temperature_celsius", reason): 1} == parser.blanked


def test_a2_utilisation_is_read_in_its_range_only() -> None:
    words = ["97", "98", "4294967295", "97", "150000", "98"]
    said = [one(f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}} {word}") for word in words]
    assert [97.0, 98.0, None, 97.0, None, 98.0] == [sample.value for sample in said]


def test_a13_an_empty_and_a_glued_value_cost_only_their_lines() -> None:
    name = "DCGM_FI_DEV_GPU_TEMP"
    said = scrape(f'{name}{{gpu="0"}} ', f'{name}{{gpu="1"}} N/A161262', f'{name}{{gpu="2"}} 41',
                  f'{name}{{gpu="3"}} 33{name}{{gpu="4"}} 34')  # fmt: skip
    reasons = [row.reason for row in said if isinstance(row, Rejected)]
    assert ["no value", "the value is no number", "the value is no number"] == reasons
    assert [41.0] == [row.value for row in said if isinstance(row, Sample)]


def test_a_line_and_its_place_are_kept_where_it_is_rejected() -> None:
    (said,) = scrape("# HELP", "", "rubbish{")
    assert isinstance(said, Rejected)
    assert ("test:3", "rubbish{") == (said.place, said.text)


@pytest.mark.parametrize(
    ("labels", "node"),
    [('Hostname="nvidia-dcgm-exporter-abc12",node="g8430"', "g8430"),
     ('Hostname="g8430.cluster.local"', "g8430"), ('hostname="g8430"', "g8430"),
     ('Hostname="10.0.0.7",instance="g8430:9400"', "g8430"),
     ('Hostname="nvidia-dcgm-exporter-abc12"', "nvidia-dcgm-exporter-abc12"),
     ('Hostname="10.0.0.7"', "10.0.0.7")],
)  # fmt: skip
def test_a15_a_host_name_is_resolved_to_a_node_of_the_inventory(labels: str, node: str) -> None:
    names = NodeNames(["g8430", "g8431"], [])
    read = read_labels(labels.encode())
    assert read is not None
    assert node == names.of_labels(read)
    assert names.knows(node) is (node == "g8430")  # of others telemetry is kept, nobody acts


def test_a16_the_workload_s_labels_are_no_part_of_the_identity() -> None:
    texts = ['pod="",namespace=""', 'pod="train-0",namespace="ml"',
             'exported_pod="train-0",pod="exporter-x",exported_namespace="ml"',
             'pod_name="train-0",pod_namespace="ml"']  # fmt: skip
    said = [one(f"DCGM_FI_DEV_GPU_TEMP{{{GPU},{text}}} 41") for text in texts]

    assert {"GPU-1"} == {sample.series.owner.entity for sample in said}
    assert ["", "train-0", "train-0", "train-0"] == [s.series.workload.pod for s in said]
    assert ["", "ml", "ml", "ml"] == [s.series.workload.namespace for s in said]
    assert "7" == workload_of({"job_id": "7"}).job


def test_a_series_twice_in_one_scrape_is_marked_in_the_next_it_is_not() -> None:
    parser = ScrapeParser("test")
    line = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 41"
    first, second = scrape(line, line, parser=parser), scrape(line, parser=parser)
    assert [False, True, False] == [s.repeated for s in first + second if isinstance(s, Sample)]


def test_names_that_are_not_ours_say_nothing_unless_all_are_asked_for() -> None:
    assert [] == scrape("go_gc_duration_seconds_count 12")
    (said,) = scrape("go_gc_duration_seconds_count 12", parser=ScrapeParser("t", every=True))
    assert isinstance(said, Sample)
    assert (None, 12.0) == (said.series.metric, said.value)


@pytest.mark.parametrize(
    ("stamp", "at_s"),
    [(1_606_402_000.0, None), (1_772_020_800_123.0, 1_772_020_800.123),
     (1_772_020_800.25, 1_772_020_800.25), (0.0, None), (float("nan"), None), (None, None)],
)  # fmt: skip
def test_only_a_time_of_this_century_is_an_event_time(
    stamp: float | None, at_s: float | None
) -> None:
    assert at_s == stamp_s(stamp)


@pytest.mark.parametrize(
    ("word", "reason"),
    [("[N/A]", "not available"), ("[Not Supported]", "not supported"), ("ERR!", "error"),
     ("[Unknown Error]", "error"), ("N/A (no PMA)", "not available"), ("", "empty"),
     ("0", None), ("N/A161262", None), ("(300Mhz)", None)],
)  # fmt: skip
def test_words_for_no_value_are_told_from_values(word: str, reason: str | None) -> None:
    assert reason == missing_reason(word)


def test_a_byte_counter_may_be_as_large_as_a_gauge_s_blank() -> None:
    line = 'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} 2147483632'
    assert 2147483632.0 == one(line).value


def mutated(data: bytes, at: int, how: int) -> bytes:
    at %= max(1, len(data))
    return [
        data[:at], data + data, data[at:] + data[:at], data[:at] + b"\0" * 9 + data[at:],
        data[:at] + b"\xff\xfe\x80" + data[at:], data.decode("latin-1").encode("utf-16"),
        data[:at] + b"x" * (1 << 20) + data[at:], data.replace(b"\n", b""),
    ][how % 8]  # fmt: skip


TEXTS = [
    f"# HELP a b\nDCGM_FI_DEV_GPU_TEMP{{{GPU}}} 41\nDCGM_FI_DEV_XID_ERRORS{{{GPU}}} 0\n".encode(),
    b"uuid, temperature.gpu, power.draw [W]\nGPU-1, 41, 600.00 W\nGPU-2, [N/A], ERR!\n",
    b"<?xml version='1.0' ?>\n<nvidia_smi_log><gpu id='00000000:01:00.0'><uuid>GPU-1</uuid>"
    b"<temperature><gpu_temp>27 C</gpu_temp></temperature></gpu></nvidia_smi_log>",
    b'{"card0": {"GPU use (%)": "7", "PCI Bus": "0000:1E:00.0"}}',
    b"#Entity TMPTR POWER\nID\nGPU 0 41 N/A\n",
    b'{"time": "2021-12-06 04:19:35", "gpu_usage:0": 56}\n',
    b'time="2026-05-28T08:32:40Z" level=info msg="gpuuid=beff74b5-0000 TimeStamp=2026-05-27'
    b' 17:59:09 Severity=CPER_SEVERITY_FATAL"\n',
]  # fmt: skip


@given(st.sampled_from(TEXTS), st.integers(0, 400), st.integers(0, 7))
def test_damage_never_raises_and_always_gives_plain_objects(text: bytes, at: int, how: int) -> None:
    data = mutated(text, at, how)
    for said in exporter_objects("f", [data]):
        assert {"file", "type"} <= set(said)
        msgspec.json.encode(said)


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    assert all("type" in said for said in exporter_objects("f", [data]))


@given(st.integers(0, 200), st.integers(0, 7))
def test_nothing_behind_the_damage_is_lost(at: int, how: int) -> None:
    broken = mutated(TEXTS[0], at, how)
    whole = f"\nDCGM_FI_DEV_POWER_USAGE{{{GPU}}} 600\n".encode()
    said = list(ScrapeParser("t").read([broken, whole]))
    assert 600.0 in [row.value for row in said if isinstance(row, Sample)]


@given(st.lists(st.integers(1, 60), max_size=8))
def test_the_size_of_the_pieces_does_not_matter(sizes: list[int]) -> None:
    data, pieces = TEXTS[0], []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    whole = list(exporter_objects("f", [TEXTS[0]]))
    assert whole == list(exporter_objects("f", [*pieces, data]))
