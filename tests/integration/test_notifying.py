"""The notifier in its thread, over real connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from actions.notify.calls import Answer, Call, NoAnswer
from actions.notify.http import UrllibHttp
from nodewarden.clock import SystemClock
from nodewarden.notifying import notifying
from telemetry.settings import Configuration, NotifyPlaceSettings
from tests.paging import incident, paging
from tests.paging_endpoint import Endpoint


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
    refused = http.post(Call(secure, {}, b"{}"))
    assert isinstance(refused, NoAnswer)
    assert refused.reason in ("tls", "connect")
    http.close()
