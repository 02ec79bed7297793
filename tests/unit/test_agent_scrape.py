"""Scrapes of exporters by the node agent: frames, Xid events, and endpoints that misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.agent.cells import Cells
from collectors.agent.fetch import Endpoint
from collectors.agent.patience import Patience
from collectors.agent.scrape import Exporters, Scraped
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.metrics import BY_NAME
from telemetry.ports import Clock
from telemetry.records import Frame
from telemetry.testing import ManualClock
from tests.agent_fakes import Answer, FakeExporter, exposition, fake_exporter

AT_S = 1_772_027_985.0


class Stopwatch:
    """Real durations from a wall clock that a test sets."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def time_s(self) -> float:
        return AT_S

    def monotonic_s(self) -> float:
        import time

        return time.monotonic() + self.skipped_s

    def sleep(self, seconds: float) -> None:
        self.skipped_s += seconds


@pytest.fixture
def exporter() -> Iterator[FakeExporter]:
    with fake_exporter() as one:
        yield one


def reader(*exporters: FakeExporter, clock: Clock | None = None, timeout_s: float = 2.0,
           bytes_max: int = 8_000_000) -> Exporters:  # fmt: skip
    clock = clock or Stopwatch()
    endpoints = [Endpoint(one.url, timeout_s, bytes_max, clock) for one in exporters]
    return Exporters(endpoints, "n1", clock)


def scrape(exporters: Exporters, at_s: float = AT_S) -> tuple[Frame | None, Scraped]:
    cells = Cells()
    done = exporters.read(cells, at_s)
    return cells.frame("gpu", "n1", "boot", at_s), done


def test_a_scrape_is_one_frame_of_the_catalogue_s_names(exporter: FakeExporter) -> None:
    exporter.text = exposition(values={"DCGM_FI_DEV_GPU_TEMP": "41"})
    frame, done = scrape(reader(exporter))

    assert frame is not None
    assert ("n1", "gpu", AT_S, "boot") == (frame.node, frame.source, frame.at, frame.boot_id)
    assert [f"GPU-{gpu:08d}" for gpu in range(8)] == frame.entities["gpu"]
    assert [41.0] * 8 == frame.metrics["gpu_temperature_celsius"]
    assert all(name in BY_NAME and len(values) == 8 for name, values in frame.metrics.items())
    assert ([], 0, 1) == (done.failures, done.broken, done.scrapes)


def test_a1_blanks_are_null_and_broken_lines_cost_only_themselves(exporter: FakeExporter) -> None:
    exporter.text = exposition(
        1, values={"DCGM_FI_DEV_POWER_USAGE": "9223372036854775794", "DCGM_FI_DEV_SM_CLOCK": "fast"}
    )
    frame, done = scrape(reader(exporter))

    assert frame is not None
    assert [None] == frame.metrics["gpu_power_watts"]
    assert "gpu_sm_clock_mhz" not in frame.metrics
    assert [1.0] == frame.metrics["gpu_temperature_celsius"]
    assert (1, ["the value is no number"]) == (done.broken, [one.reason for one in done.rejected])


def test_a3_an_xid_gauge_that_rises_is_an_event_the_first_scrape_is_history(
    exporter: FakeExporter,
) -> None:
    exporters = reader(exporter)
    exporter.text = exposition(2, values={"DCGM_FI_DEV_XID_ERRORS": "31"})
    assert [] == scrape(exporters)[1].events
    exporter.text = exposition(2, values={"DCGM_FI_DEV_XID_ERRORS": "79"})
    events = scrape(exporters, AT_S + 10.0)[1].events

    assert [(79, "gpu:GPU-00000000"), (79, "gpu:GPU-00000001")] == [
        (event.code, event.entity) for event in events
    ]
    assert [AT_S + 10.0] * 2 == [event.at for event in events]


def test_labels_name_the_gpus_and_never_the_node(exporter: FakeExporter) -> None:
    exporter.text = exposition(2).replace('Hostname="n1"', 'Hostname="dcgm-exporter-x7k2p"')
    exporters = reader(exporter)
    frame, _ = scrape(exporters)

    assert frame is not None
    assert "n1" == frame.node
    assert [(0, "0000:01:00"), (1, "0000:02:00")] == [
        (gpu.index, gpu.pci) for gpu in exporters.gpus()
    ]


def test_what_two_exporters_tell_is_one_frame_and_the_first_is_believed(
    exporter: FakeExporter,
) -> None:
    with fake_exporter() as other:
        exporter.text = exposition(1, 1, {"DCGM_FI_DEV_GPU_TEMP": "41"})
        other.text = exposition(1, 2, {"DCGM_FI_DEV_GPU_TEMP": "99"})
        frame, _ = scrape(reader(exporter, other))

    assert frame is not None
    assert [41.0] == frame.metrics["gpu_temperature_celsius"]
    assert 2 == len(frame.metrics)


@pytest.mark.parametrize(
    ("answer", "why"),
    [("never", "no whole answer within"), ("drips", "no whole answer within"),
     ("huge", "more than 8000000 bytes"), ("junk", ""), ("error", "answers 503"),
     ("cut", "breaks off")],
)  # fmt: skip
def test_a18_an_endpoint_that_misbehaves_costs_its_time_out_and_no_more(
    exporter: FakeExporter, answer: Answer, why: str
) -> None:
    exporter.answer = answer
    frame, done = scrape(reader(exporter, timeout_s=0.3))

    assert frame is None
    assert 1 == len(done.failures)
    assert why in done.failures[0]
    assert exporter.url in done.failures[0]


def test_a18_who_failed_is_left_alone_longer_each_time_and_the_others_are_not(
    exporter: FakeExporter,
) -> None:
    with fake_exporter() as other:
        clock = Stopwatch()
        exporters = reader(exporter, other, clock=clock, timeout_s=0.2)
        exporter.answer = "error"
        for _ in range(12):
            frame, _ = scrape(exporters)
            assert frame is not None
            clock.sleep(10.0)
        # 0, 10, 20, 40, 80: after waits of 5, 10, 20 and 40 s
        assert (5, 12) == (exporter.asked, other.asked)

        exporter.answer = "text"
        clock.sleep(60.0)
        scrape(exporters)
        scrape(exporters)
        assert 7 == exporter.asked


def test_a_scrape_that_failed_is_no_scrape_at_all(exporter: FakeExporter) -> None:
    """Half a scrape would look like metrics that vanished, and its Xids would be news twice."""
    exporters = reader(exporter, timeout_s=0.5)
    scrape(exporters)
    exporter.text = exposition(8, values={"DCGM_FI_DEV_XID_ERRORS": "79"})
    exporter.answer = "cut"
    frame, done = scrape(exporters)

    assert (None, []) == (frame, done.events)


def test_nobody_listens() -> None:
    frame, done = scrape(
        Exporters([Endpoint("http://127.0.0.1:1/metrics", 0.5, 1_000, Stopwatch())], "n1",
                  Stopwatch())
    )  # fmt: skip
    assert frame is None
    assert "refused" in done.failures[0]


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9400", "ftp://h/metrics", "http://", "http://h:99999/metrics",
            "http://h/m\r\nX: y", "http://h/a b", "http://[::1/metrics"]
)  # fmt: skip
def test_a_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match="is no URL"):
        Endpoint(url, 2.0, 1_000, ManualClock())


def test_a_body_of_exactly_the_bound_is_read_one_byte_more_is_not(exporter: FakeExporter) -> None:
    clock = Stopwatch()
    size = len(exporter.text)
    assert size == sum(map(len, Endpoint(exporter.url, 2.0, size, clock).pieces()))
    with pytest.raises(SourceUnavailable, match="more than"):
        list(Endpoint(exporter.url, 2.0, size - 1, clock).pieces())


def test_patience_doubles_to_its_bound_and_forgets_when_it_works() -> None:
    patience, now_s, waits = Patience(5.0, 60.0), 0.0, []
    for _ in range(6):
        patience.failed(now_s)
        waits.append(next(s for s in range(100) if patience.is_over(now_s + s)))
        now_s += 100.0
    assert [5, 10, 20, 40, 60, 60] == waits
    patience.worked()
    assert patience.is_over(0.0)


def test_values_beyond_the_bound_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.agent.cells.CELLS_MAX", 3)
    cells = Cells()
    for gpu in range(5):
        cells.add(BY_NAME["gpu_power_watts"], f"GPU-{gpu}", 1.0)
    frame = cells.frame("gpu", "n1", "", AT_S)
    assert frame is not None
    assert (3, 2) == (len(frame.entities["gpu"]), cells.left_out)
