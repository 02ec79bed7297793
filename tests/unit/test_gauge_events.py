"""Xid gauges of exporters: what is news, what is history, and what is told twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gauge_events import EVENTS_OF_ONE_RISE_MAX, Form, GaugeEvents, Reading
from collectors.gauge_runs import GaugeRuns
from collectors.series import Series, read_series
from telemetry.records import Event

START_S = 1_772_020_800.0


def feed(
    form: Form, values: Sequence[float | None], code: int = 0, instance: str = "GPU-1",
    fold: GaugeEvents | None = None, step_s: float = 10.0, start_s: float = START_S,
) -> list[Event]:  # fmt: skip
    fold = fold or GaugeEvents()
    said: list[Event] = []
    for at, value in enumerate(values):
        said += fold.read(
            Reading("n1", instance, form, start_s + step_s * at, value, code, first=at == 0)
        )
    return said


def codes(events: list[Event]) -> list[int | None]:
    return [event.code for event in events]


def test_a3_the_gauge_of_the_last_xid_tells_one_event_and_no_recovery() -> None:
    said = feed("last", [0.0] * 30 + [31.0] * 360 + [0.0] * 30)

    assert [31] == codes(said)
    assert (START_S + 300.0, "exporter", "gpu:GPU-1", "xid") == (
        said[0].at, said[0].source, said[0].entity, said[0].type,
    )  # fmt: skip


def test_a3_what_the_first_scrape_shows_is_history() -> None:
    assert [] == feed("last", [31.0] * 360)
    assert [] == feed("window", [2.0] * 5, code=43)


def test_the_same_xid_after_a_restart_and_another_xid_are_events() -> None:
    assert [31, 31, 45] == codes(feed("last", [0.0, 31.0, 0.0, 31.0, 45.0], step_s=120.0))


def test_a_scrape_without_a_value_ends_nothing_and_begins_nothing() -> None:
    assert [31] == codes(feed("last", [0.0, 31.0, None, None, 31.0]))


def test_a5_a_rise_of_the_windowed_count_is_an_event_and_a_fall_is_ageing() -> None:
    said = feed("window", [0.0, 1.0, 1.0, 2.0, 2.0, 1.0, 0.0], code=43)

    assert [43, 43] == codes(said)
    assert [START_S + 10.0, START_S + 30.0] == [event.at for event in said]


@pytest.mark.parametrize(
    "name", ["DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_COUNT", "x_dcgm_exp_xid_errors_count"]
)
def test_a5_both_names_of_the_windowed_count_are_known(name: str) -> None:
    series = read_series(name, b'gpu="0",UUID="GPU-1",xid="43"')
    assert isinstance(series, Series)
    assert series.metric is not None
    assert "gpu_xid_window_events" == series.metric.name


def test_a_count_that_vanished_for_longer_than_its_window_starts_from_nothing() -> None:
    assert [43, 43] == codes(feed("window", [0.0, 1.0, 1.0], code=43, step_s=400.0))


def test_a_total_that_falls_was_reset_and_counts_anew() -> None:
    assert [43] * 3 == codes(feed("total", [5.0, 6.0, 2.0], code=43, step_s=100.0))


def test_a6_a_code_is_never_a_number_of_errors() -> None:
    said = feed("last", [0.0, 0.0, 79.0])
    assert [79] == codes(said)

    series = read_series("DCGM_FI_DEV_XID_ERRORS", b'gpu="0",UUID="GPU-1"')
    assert isinstance(series, Series)
    assert series.metric is not None
    assert (False, "state") == (series.metric.judged, series.metric.kind)


def test_a14_a_device_s_xid_shown_on_four_mig_instances_is_one_event() -> None:
    fold, said = GaugeEvents(), []
    for at, code in enumerate([0.0, 63.0, 63.0]):
        for part in (3, 4, 5, 6):
            said += fold.read(
                Reading("n1", f"GPU-1/{part}", "last", START_S + 10.0 * at, code, first=at == 0)
            )
    assert [63] == codes(said)
    assert "gpu:GPU-1" == said[0].entity


def test_two_gpus_with_one_code_are_two_events() -> None:
    fold = GaugeEvents()
    said = feed("last", [0.0, 48.0], fold=fold) + feed(
        "last", [0.0, 48.0], instance="GPU-2", fold=fold
    )
    assert ["gpu:GPU-1", "gpu:GPU-2"] == [event.entity for event in said]


def test_the_gauge_and_the_count_of_one_exporter_tell_one_xid() -> None:
    fold = GaugeEvents()
    feed("last", [0.0], fold=fold)
    feed("window", [0.0], code=43, fold=fold)
    said = feed("last", [43.0], fold=fold, start_s=START_S + 10.0)
    said += feed("window", [1.0], code=43, fold=fold, start_s=START_S + 10.0)
    assert [43] == codes(said)


def test_a_count_cannot_flood() -> None:
    assert EVENTS_OF_ONE_RISE_MAX == len(feed("window", [0.0, 1e6], code=95))


@pytest.mark.parametrize("code", [-1.0, 4_294_967_295.0, 5_000.0])
def test_what_is_no_code_is_no_event(code: float) -> None:
    assert [] == feed("last", [0.0, code])


def runs(name: str, labels: bytes, values: list[float], at: list[float], into: GaugeRuns) -> None:
    series = read_series(name, labels)
    assert isinstance(series, Series)
    into.add("n1", series, START_S + np.array(at), np.array(values))


def test_series_that_change_their_labels_with_the_code_are_one_gauge() -> None:
    gauge = GaugeRuns()
    name, gpu = "DCGM_FI_DEV_XID_ERRORS", b'gpu="0",UUID="GPU-1"'
    runs(name, gpu, [0.0] * 6, [0, 10, 20, 100, 110, 120], gauge)
    runs(name, gpu + b',err_code="31",err_msg="MMU fault"', [31.0] * 4, [30, 40, 200, 210], gauge)

    assert [START_S + 30.0, START_S + 200.0] == [event.at for event in gauge.events()]


def test_a_series_that_begins_after_the_node_was_heard_is_no_history() -> None:
    gauge = GaugeRuns()
    gauge.heard("n1", START_S)
    labels = b'gpu="0",UUID="GPU-1",xid="43"'
    runs("DCGM_EXP_XID_ERRORS_COUNT", labels, [1.0, 1.0], [60, 70], gauge)
    assert [43] == codes(list(gauge.events()))


@given(
    st.lists(st.sampled_from([0.0, 31.0, 43.0, 79.0, np.nan]), min_size=1, max_size=60),
    st.integers(0, 59),
)
def test_reading_a_dump_by_its_turns_tells_what_reading_every_scrape_tells(
    values: list[float], cut: int
) -> None:
    gauge = GaugeRuns()
    name, labels = "DCGM_FI_DEV_XID_ERRORS", b'gpu="0",UUID="GPU-1"'
    at = [90.0 * place for place in range(len(values))]
    gauge.heard("n1", START_S)
    for part in (slice(0, cut), slice(cut, None)):
        if values[part]:
            runs(name, labels, values[part], at[part], gauge)

    every = feed("last", [None if v != v else v for v in values], step_s=90.0)  # noqa: PLR0124
    assert [(e.at, e.code) for e in every] == [(e.at, e.code) for e in gauge.events()]
