"""The notifier in its thread, over real connections."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from actions.notify.calls import Answer, Call, NoAnswer
from actions.notify.http import UrllibHttp
from nodewarden.clock import SystemClock
from nodewarden.notifying import notifying
from telemetry.settings import Configuration, NotifyPlaceSettings
from tests.paging import incident, paging


class Endpoint:
    """Answers as `answers` say, 202 when they are used up; `heard` gets what was posted."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self.hang = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/hang":
                    outer.hang.wait(60.0)
                status, headers = outer.answers.pop(0) if outer.answers else (202, {})
                if status == 202:
                    outer.heard.put(json.loads(body))
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def test_an_incident_is_told_and_after_a_restart_its_end(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    file, key = tmp_path / "notify.toml", tmp_path / "oncall.key"
    key.write_text("K" * 32, "utf-8")
    file.write_text(
        f"""
        [receivers.oncall]
        kind = "pagerduty"
        url = "{endpoint.url}"
        routing_key_file = "{key}"
        [route]
        receiver = "oncall"
        group_wait_s = 0.0
        keep_open_s = 0.0
        """,
        "utf-8",
    )
    place = NotifyPlaceSettings(file=str(file), state_dir=str(tmp_path / "state"))
    configuration = Configuration(notify=place)
    clock, stop = SystemClock(), threading.Event()
    endpoint.answers.append((503, {}))
    one = incident(at=clock.time_s())
    over = msgspec.structs.replace(one, rev=2, closed_at=one.opened_at + 0.001)
    for heard, shown in (("trigger", one), ("resolve", over)):
        with notifying(configuration, clock, CollectorRegistry(), stop) as notifier:
            assert notifier is not None
            notifier.take(shown)
            notifier.save()
            event = endpoint.heard.get(timeout=60.0)
        assert (event["event_action"], event["routing_key"]) == (heard, "K" * 32)


def test_without_a_notify_file_nobody_is_told() -> None:
    clock, stop = SystemClock(), threading.Event()
    with notifying(Configuration(), clock, CollectorRegistry(), stop) as notifier:
        assert notifier is None


def test_one_call_is_one_call(endpoint: Endpoint) -> None:
    """Redirects are answers, and what the server asks for is passed on."""
    receiver = msgspec.structs.replace(paging().receivers["chat"], timeout_s=0.3)
    http = UrllibHttp("chat", receiver)
    endpoint.answers += [
        (302, {"Location": f"{endpoint.url}/elsewhere"}), (429, {"Retry-After": "42"}),
        (429, {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}), (429, {"Retry-After": "1e9"}),
    ]  # fmt: skip
    found = [http.post(Call(f"{endpoint.url}/hook", {}, b"{}")) for _ in range(5)]
    assert [a.status for a in found if isinstance(a, Answer)] == [302, 429, 429, 429, 202]
    assert [a.retry_after_s for a in found if isinstance(a, Answer)] == [None, 42.0, *[None] * 3]
    assert http.post(Call(f"{endpoint.url}/hang", {}, b"{}")) == NoAnswer("timeout")
    secure = endpoint.url.replace("http://", "https://")
    assert http.post(Call(secure, {}, b"{}")) in (NoAnswer("tls"), NoAnswer("connect"))
    http.close()
