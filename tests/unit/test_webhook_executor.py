"""Commands as signed POSTs: at most once, and what is not certain is unknown."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time

import pytest

from actions.executors.webhook import WebhookExecutor, check_webhook
from actions.notify.calls import Answer, Call, NoAnswer
from actions.notify.http import UrllibHttp
from actions.notify.settings import ReceiverSettings
from telemetry.actions import Preconditions
from telemetry.errors import SettingsError
from telemetry.settings import ActWebhookSettings
from telemetry.testing import ManualClock
from tests.commands import command
from tests.paging_endpoint import Endpoint

SETTINGS = ActWebhookSettings(url="https://ops.example/nodewarden", key="k" * 16)


class Once:
    """An Http with one answer."""

    def __init__(self, answer: Answer | NoAnswer) -> None:
        self.answer, self.calls = answer, list[Call]()

    def post(self, call: Call) -> Answer | NoAnswer:
        self.calls.append(call)
        return self.answer


def test_the_body_is_signed_together_with_the_time() -> None:
    http = Once(Answer(200))
    clock = ManualClock(1_700_000_000.0)
    one = command("isolate_and_restart", "n1", step="restart", mode="requeue", job="7",
                  exclude=("n1",), versions={"code": "v2"})  # fmt: skip
    done = WebhookExecutor(SETTINGS, http, clock).execute(one)

    assert ("done", "taken with status 200") == (done.status, done.reason)
    (call,) = http.calls
    assert SETTINGS.url == call.url
    expected = hmac.new(b"k" * 16, b"1700000000." + call.body, hashlib.sha256).hexdigest()
    assert f"sha256={expected}" == call.headers["X-Nodewarden-Signature"]
    assert ("1700000000", "c1") == (
        call.headers["X-Nodewarden-Timestamp"], call.headers["Idempotency-Key"],
    )  # fmt: skip
    body = json.loads(call.body)
    assert {
        "version": 1, "id": "c1", "step": "restart", "mode": "requeue", "targets": ["n1"],
        "job": "7", "exclude": ["n1"], "versions": {"code": "v2"}, "incident": "incident1",
    }.items() <= body.items()  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(204), "done"),
        (Answer(200, b'{"status": "refused", "reason": "not mine"}'), "refused"),
        (Answer(200, b'{"status": "failed", "reason": "broken"}'), "failed"),
        (Answer(200, b"\xff<html>"), "done"),
        (Answer(200, b'{"status": "perhaps"}'), "done"),
        (Answer(302), "failed"),
        (Answer(401), "failed"),
        (Answer(429), "failed"),
        (Answer(501), "refused"),
        (Answer(408), "unknown"),
        (Answer(500), "unknown"),
        (Answer(503), "unknown"),
        (NoAnswer("timeout"), "unknown"),
        (NoAnswer("connect"), "unknown"),
        (NoAnswer("tls"), "failed"),
    ],
)
def test_only_what_is_certain_is_certain(answer: Answer | NoAnswer, status: str) -> None:
    http = Once(answer)
    done = WebhookExecutor(SETTINGS, http, ManualClock()).execute(command("isolate", "n1"))
    assert (status, 1) == (done.status, len(http.calls))
    assert "k" * 16 not in done.reason


def test_nobody_can_read_it_back_and_a_dry_run_calls_nobody() -> None:
    http = Once(Answer(200))
    does = WebhookExecutor(SETTINGS, http, ManualClock())
    assert does.achieved(command("isolate", "n1"), Preconditions()) is None
    assert Preconditions(job="7") == does.observe(["n1"], "7")
    assert "refused" == does.execute(command("isolate", "n1", dry_run=True)).status
    assert [] == http.calls


def test_a_webhook_without_a_key_or_a_url_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"act\.webhook\.url"):
        check_webhook(ActWebhookSettings(key="k" * 16))
    with pytest.raises(SettingsError, match=r"act\.webhook\.key: 3 characters") as caught:
        check_webhook(ActWebhookSettings(url="https://ops.example/", key="abc"))
    assert "abc" not in str(caught.value)
    check_webhook(SETTINGS)


def test_over_a_real_connection_it_is_posted_once_whatever_is_answered() -> None:
    endpoint = Endpoint()
    try:
        for answer, status in ((202, "done"), (307, "failed"), (500, "unknown"), (409, "failed")):
            endpoint.answers.append((answer, {"Location": endpoint.url}))
            done = over(endpoint.url).execute(command("isolate", "n1"))
            assert status == done.status, answer
        assert "c1" == endpoint.heard.get(timeout=10.0)["id"]
        assert endpoint.heard.empty()  # no redirect was followed, nothing posted again
        slow = over(f"{endpoint.url}/hang").execute(command("isolate", "n1"))
        assert ("unknown", True) == (slow.status, "timeout" in slow.reason)
    finally:
        endpoint.close()
    assert "unknown" == over(endpoint.url).execute(command("isolate", "n1")).status


@pytest.mark.parametrize(
    ("pieces", "length", "status"),
    [
        ((b'{"status": ', b'"failed"}'), 20, "failed"),
        ((b'{"status": ',), 20, "unknown"),
        ((b'{"status": "done", "reason": "', b"x" * 70_000, b'"}'), 70_032, "unknown"),
        ((), 0, "done"),
    ],
)
def test_an_answer_in_pieces_is_read_whole_and_one_that_breaks_off_says_nothing(
    pieces: tuple[bytes, ...], length: int, status: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answers() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):  # nobody reads the rest of what is long
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
                for piece in pieces:
                    time.sleep(0.05)
                    connection.sendall(piece)

        thread = threading.Thread(target=answers)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        done = over(url).execute(command("isolate", "n1"))
        thread.join()
    assert status == done.status


def test_a_tls_connection_that_breaks_may_have_done_so_after_the_call() -> None:
    broke = WebhookExecutor(SETTINGS, Once(NoAnswer("tls", may_be_sent=True)), ManualClock())
    assert "unknown" == broke.execute(command("isolate", "n1")).status


def over(url: str) -> WebhookExecutor:
    settings = ActWebhookSettings(url=url, key="k" * 16, timeout_s=0.5)
    connection = ReceiverSettings(kind="webhook", timeout_s=settings.timeout_s)
    return WebhookExecutor(settings, UrllibHttp("webhook", connection, "act"), ManualClock())
