"""The central collector against a server that answers what the test says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.central.api import NotPrometheus, PrometheusApi, TooMuch
from collectors.central.pages import Pages, Samples
from collectors.central.reader import PageReader
from collectors.openmetrics import OpenMetricsParser, Run
from collectors.prometheus_api import read_answers
from collectors.prometheus_runs import RunReader
from collectors.series import Series, read_series
from collectors.series_arrays import FloatArray
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.records import Frame, Rejected
from telemetry.settings import PrometheusSettings
from telemetry.testing import ManualClock

NOW_S = 1_772_028_000.0
Answer = Callable[[str, dict[str, str]], tuple[int, str]]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server whose answers are (status, body) of path and form."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            parts = urlsplit(self.path)
            form = {k: v[0] for k, v in parse_qs(asked or parts.query).items()}
            status, body = answer(parts.path, form)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def success(data: object) -> tuple[int, str]:
    return 200, json.dumps({"status": "success", "data": data})


def matrix(*result: object) -> tuple[int, str]:
    return success({"resultType": "matrix", "result": result})


def failure(status: int, text: str) -> tuple[int, str]:
    return status, json.dumps({"status": "error", "errorType": "execution", "error": text})


def api(url: str, **settings: object) -> PrometheusApi:
    return PrometheusApi(url, PrometheusSettings(**settings), SystemClock())  # type: ignore[arg-type]


# -- the API


@pytest.mark.parametrize("url", ["", "prometheus:9090", "http://", "http://h:x", "http://u:p@h"])
def test_a_wrong_url_stops_the_start_in_one_line(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="--prometheus"):
        api(url)
    if url:
        arguments = ["collect", "--prometheus", url, "--stdout", "--once"]
        assert 2 == run(arguments, {"NODEWARDEN_COLLECT__STATE_DIR": str(tmp_path)})
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("nodewarden: --prometheus")


@pytest.mark.parametrize("status", [200, 404])
def test_something_else_at_the_url_is_one_line_with_the_remedy(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda *_: (status, "<html>Welcome</html>")) as url:
        assert 2 == run(["collect", "--prometheus", url, "--stdout", "--once"], {})
    said = capsys.readouterr()
    assert "no Prometheus; --prometheus takes its base address" in said.err
    assert (1, "") == (len(said.err.splitlines()), said.out)


def test_nobody_at_the_url_is_said_and_with_once_it_ends_with_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 3 == run(["collect", "--prometheus", "http://127.0.0.1:9", "--stdout", "--once"], {})
    assert "127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failure(503, "starting up"), SourceUnavailable),
        ((503, "Service Unavailable"), SourceUnavailable),
        (failure(422, "query processing would load too many samples into memory"), TooMuch),
        ((401, "Unauthorized"), NotPrometheus),
        (failure(400, "parse error"), SourceUnavailable),
        ((200, '{"status":"success","data":{"result":'), NotPrometheus),
    ],
)
def test_what_an_answer_means(answer: tuple[int, str], error: type[Exception]) -> None:
    with serving(lambda *_: answer) as url, pytest.raises(error) as raised:
        api(url).time_s()
    assert error is raised.type


def test_a_token_and_headers_go_with_every_question(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with pytest.raises(SettingsError, match="token_file"):
        api("http://h", token_file=str(tmp_path / "nowhere"))
    one = api("http://h", token_file=str(tmp_path / "token"), headers={"X-Scope-OrgID": "team"})
    head = one._head("/api/v1/query", "query=1", get=False)
    assert b"Authorization: Bearer secret\r\n" in head
    assert b"X-Scope-OrgID: team\r\n" in head


def test_a_header_with_a_line_break_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"prometheus\.headers"):
        api("http://h", headers={"X": "a\r\nHost: b"})


# -- the reader

NAMES = ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "up", "node_load1", "training_step"]


def answering(samples: Callable[[str, float], tuple[int, str]]) -> Answer:
    def answer(path: str, form: dict[str, str]) -> tuple[int, str]:
        if path.endswith("/values"):
            return success(NAMES)
        if form["query"] == "time()":
            return success({"resultType": "scalar", "result": [NOW_S, str(NOW_S)]})
        return samples(form["query"], float(form["time"]))

    return answer


def reader(url: str, **settings: object) -> PageReader:
    asked = PrometheusSettings(**settings)  # type: ignore[arg-type]
    return PageReader(PrometheusApi(url, asked, SystemClock()), asked, SystemClock(), lambda: None)


def test_one_question_a_source_for_the_names_that_we_know_and_none_of_the_newest_samples() -> None:
    asked: list[tuple[str, float]] = []

    def samples(query: str, at_s: float) -> tuple[int, str]:
        asked.append((query, at_s))
        return matrix()

    with serving(answering(samples)) as url:
        read = reader(url, delay_s=10.0, page_s=60.0, match='job="x"').next(None, None)
    assert read is not None
    end_s = NOW_S - 10.0 - 60.0
    assert sorted(asked) == [
        ('{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_POWER_USAGE",job="x"}[60000ms]', end_s),
        ('{__name__=~"node_load1",job="x"}[60000ms]', end_s),
        ('{__name__=~"training_step",job="x"}[60000ms]', end_s),
    ]
    assert read.more


def test_a_server_without_a_name_that_we_know_is_asked_again_soon() -> None:
    clock, names = ManualClock(), ["up"]

    def answer(path: str, form: dict[str, str]) -> tuple[int, str]:
        if path.endswith("/values"):
            return success(names)
        return answering(lambda _query, _at_s: matrix())(path, form)

    with serving(answer) as url:
        settings = PrometheusSettings(names_s=300.0)
        read = PageReader(PrometheusApi(url, settings, clock), settings, clock, lambda: None)
        read.next(None, None)
        assert not any(read.families.values())
        names.append("DCGM_FI_DEV_GPU_TEMP")
        read.next(None, None)
        assert not any(read.families.values())
        clock.sleep(15.0)
        read.next(None, None)
        assert ["DCGM_FI_DEV_GPU_TEMP"] == [n for found in read.families.values() for n in found]


def test_too_much_is_asked_for_in_less_time_and_then_in_fewer_names() -> None:
    asked: list[str] = []

    def samples(query: str, at_s: float) -> tuple[int, str]:
        asked.append(query)
        if "|" in query:
            return failure(422, "query processing would load too many samples into memory")
        return matrix()

    with serving(answering(samples)) as url:
        read = reader(url).next(int((NOW_S - 100.0) * 1e3), None)
    assert read is not None
    assert read.end_ms - read.start_ms < 10_000
    assert any('GPU_TEMP"}' in query for query in asked)
    assert 0 == read.left_out


def test_a_metric_that_is_too_large_alone_is_left_out_and_said() -> None:
    def samples(query: str, at_s: float) -> tuple[int, str]:
        if "GPU_TEMP" in query:
            return failure(422, "too many samples")
        return matrix()

    with serving(answering(samples)) as url:
        read = reader(url).next(int((NOW_S - 15.0) * 1e3), None)
    assert read is not None
    assert (1, 1) == (read.left_out, len(read.notes))


def test_an_outage_longer_than_the_look_back_is_a_gap_and_said() -> None:
    with serving(answering(lambda *_: matrix())) as url:
        far = int((NOW_S - 5_000.0) * 1e3)
        read = reader(url, lookback_s=1_000.0, delay_s=0.0).next(far, far)
    assert read is not None
    assert (4_000_000, int((NOW_S - 1_000.0) * 1e3)) == (read.gap_ms, read.start_ms)
    assert "4000 s were missed" in read.notes[0]


def test_an_answer_beyond_its_bound_is_not_read_to_its_end() -> None:
    with serving(lambda *_: (200, "x" * 100_000)) as url, pytest.raises(TooMuch):
        api(url, answer_max_bytes=1_000).time_s()


# -- pages


def series(metric: str, gpu: int, node: str) -> Series:
    found = read_series(metric, f'Hostname="{node}",UUID="GPU-{gpu}",gpu="{gpu}"'.encode())
    assert isinstance(found, Series)
    return found


SERIES = [
    series(metric, gpu, node)
    for node in ("n1", "n2")
    for metric in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")
    for gpu in (0, 1)
]


def paged(cuts: list[float], shift_s: float) -> list[Frame]:
    """Two nodes, 20 scrapes each 15 s; power comes `shift_s` later, from another exporter."""
    pages, told, before = Pages(), [], 0.0
    for cut in [*cuts, 1_000.0]:
        samples = Samples()
        for one in SERIES:
            assert one.metric is not None
            late = shift_s if one.metric.name == "gpu_power_watts" else 0.0
            times: FloatArray = np.asarray(NOW_S + late + 15.0 * np.arange(20), np.float64)
            inside = (times > NOW_S + before) & (times <= NOW_S + cut)
            if inside.any():
                samples.take([Run(one, np.asarray(times[inside]), np.arange(20.0)[inside])])
        told += pages.page(samples, NOW_S + cut)
        before = cut
    return [r for r in told if isinstance(r, Frame)]


@given(st.lists(st.floats(61.0, 320.0), max_size=12), st.sampled_from([0.0, 0.4, 3.0]))
def test_however_the_past_is_paged_the_frames_are_the_same(
    cuts: list[float], shift_s: float
) -> None:
    """The first minute tells the interval."""
    whole = paged([-1.0, 61.0], shift_s)
    found = paged([-1.0, 61.0, *sorted(cuts)], shift_s)
    for node in ("n1", "n2"):
        one = [(f.at, f.entities, f.metrics) for f in whole if f.node == node]
        assert one == [(f.at, f.entities, f.metrics) for f in found if f.node == node]
    assert len({(f.node, f.at) for f in found}) == len(found)


@pytest.mark.parametrize("apart_s", [0.3, 2.0, 5.0, 7.0, 12.0])
@pytest.mark.parametrize("page_s", [5.0, 60.0])
def test_of_a_pair_of_prometheus_the_interval_is_each_ones_own_and_no_row_waits(
    apart_s: float, page_s: float
) -> None:
    """Both say everything, each at its own moments."""
    both = [series("DCGM_FI_DEV_GPU_TEMP", 0, "n1") for _ in range(2)]
    pages, frames = Pages(), 0
    for end_s in np.arange(page_s, 301.0, page_s).tolist():
        samples = Samples()
        for number, one in enumerate(both):
            times = NOW_S + 1.0 + number * apart_s + 15.0 * np.arange(20)
            inside = (times > NOW_S + end_s - page_s) & (times <= NOW_S + end_s)
            if inside.any():
                samples.take([Run(one, np.asarray(times[inside]), np.full(inside.sum(), 61.0))])
        frames += len(pages.page(samples, NOW_S + end_s))
        assert pages.held_s() is None
    assert {"gpu": 15.0} == pages.intervals()
    assert 40 == frames


# -- runs

VALUES = st.sampled_from(
    ["61", "1e3", "NaN", "+Inf", "-Inf", "9223372036854775794", "x", "", "1_0"]
)
METRIC = st.fixed_dictionaries(
    {"__name__": st.sampled_from([*NAMES, "training_loss", "node_infiniband_link_downed_total"])},
    optional={
        "Hostname": st.text('n1"\\\n,=', max_size=5), "gpu": st.sampled_from(["0", "1"]),
        "UUID": st.just("GPU-1"), "device": st.just("mlx5_0"), "odd": st.integers(),
    },
)  # fmt: skip
SAMPLES = st.lists(st.tuples(st.floats(NOW_S, NOW_S + 60.0), VALUES | st.integers()), max_size=4)


def of_runs(found: Iterator[Run | Rejected]) -> tuple[list[tuple[Any, ...]], int]:
    """Every sample, and how much was rejected."""
    samples: list[tuple[Any, ...]] = []
    broken = 0
    for one in found:
        if isinstance(one, Rejected):
            broken += 1
            continue
        name = one.series.column or (one.series.metric.name if one.series.metric else "")
        labels = tuple(sorted(one.series.labels.items()))
        for at, value in zip(one.times.tolist(), one.values.tolist(), strict=True):
            samples.append((name, one.series.entity, labels, at, repr(value)))
    return sorted(samples), broken


def as_captures_read(answer: bytes) -> Iterator[Run | Rejected]:
    parser = OpenMetricsParser("test")
    for piece in read_answers(answer, "test"):
        if isinstance(piece, Rejected):
            yield piece
        else:
            yield from parser.feed(piece)
    yield from parser.finish()


@given(st.lists(st.fixed_dictionaries({"metric": METRIC, "values": SAMPLES}), max_size=6))
def test_an_answer_says_what_a_capture_of_it_says(result: list[object]) -> None:
    answer = matrix(*result)[1].encode()
    reader = RunReader("test")
    wanted, broken = of_runs(as_captures_read(answer))
    found, rejected = of_runs(reader.read(answer))
    assert (wanted, broken > 0) == (found, rejected > 0)
    assert wanted == of_runs(reader.read(answer))[0]  # known series say the same again


@given(st.integers(0, 400))
def test_an_answer_that_is_cut_is_salvaged(at: int) -> None:
    metric = {"__name__": NAMES[0], "Hostname": "n1", "gpu": "0"}
    answer = matrix({"metric": metric, "values": [[NOW_S, "61"]]})[1].encode()[:at]
    assert of_runs(as_captures_read(answer)) == of_runs(RunReader("test").read(answer))


def test_sigterm_does_not_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "nodewarden", "collect", "--prometheus", url, "--stdout"],
            env={**os.environ, "NODEWARDEN_COLLECT__STATE_DIR": str(tmp_path)},
        )
        silent.settimeout(30.0)
        asked, _ = silent.accept()
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(10.0)  # its question waits for 30 s
        asked.close()
