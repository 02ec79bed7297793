"""The ping over a real connection: taken, refused, redirected, slow, broken; its TLS is checked."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from collectors.watch.deadman import ANSWER_MAX_BYTES, Deadman, Ping, split_url
from collectors.watch.metrics import WatchMetrics
from nodewarden.clock import SystemClock
from telemetry.errors import SettingsError
from telemetry.http_get import HttpGet

SECRET = "/0f3a-secret?rid=1"
TIMEOUT_S = 0.5


def ping(url: str, ca_file: str = "") -> str:
    server, path = split_url(url, "deadman.url")
    asked = HttpGet(
        server, "deadman.url", TIMEOUT_S, ANSWER_MAX_BYTES, SystemClock(), ca_file,
        "deadman.ca_file",
    )  # fmt: skip
    return Ping(asked, path).send()


@contextmanager
def outside(
    answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def says(status: int, location: str = "", body: bytes = b"OK") -> Callable[..., None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if location:
            handler.send_header("Location", location)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_2xx_is_a_ping_that_was_taken(status: int) -> None:
    with outside(says(status, body=b"" if status == 204 else b"OK")) as (url, asked):
        assert "" == ping(url + SECRET)
    assert [SECRET] == asked


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_any_other_status_is_not_and_the_path_is_not_said(status: int) -> None:
    with outside(says(status)) as (url, _):
        assert f"{url}: answers {status}" == ping(url + SECRET)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_wherever_it_leads(status: int) -> None:
    with (
        outside(says(200)) as (elsewhere, others),
        outside(says(status, elsewhere + SECRET)) as (url, asked),
    ):
        assert f"{url}: answers {status}" == ping(url + SECRET)
        assert ([SECRET], []) == (asked, others)


def test_nobody_there_and_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = ping(url + SECRET)
        assert said.startswith(url)
        assert "secret" not in said
    assert "refused" in ping(url + SECRET)
    assert "nowhere.invalid" in ping(f"http://nowhere.invalid{SECRET}")


def test_an_answer_that_drips_or_is_endless_ends_in_time() -> None:
    def drips(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b".")
            time.sleep(0.05)

    with outside(drips) as (url, _):
        assert "secret" not in ping(url + SECRET) != ""
    with outside(says(200, body=b"x" * 200_000)) as (url, _):
        assert "" != ping(url + SECRET)


@pytest.mark.parametrize("garbage", [b"", b"\r\n", b"220 smtp\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_http_raises_nothing(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(garbage)

    with outside(answer) as (url, _):
        registry = CollectorRegistry()
        server, path = split_url(url + SECRET, "deadman.url")
        clock = SystemClock()
        asked = HttpGet(server, "deadman.url", TIMEOUT_S, ANSWER_MAX_BYTES, clock)
        Deadman(Ping(asked, path).send, [], 60.0, clock, WatchMetrics(registry)).step()
    assert 1.0 == registry.get_sample_value("nodewarden_deadman_failed_pings_total")
    (line,) = [record.message for record in caplog.records]
    assert re.fullmatch(r"ping_failed why=http://127.0.0.1:\d+: \S.*", line)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For 127.0.0.1, signed by itself; the key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    directory = tmp_path_factory.mktemp("tls")
    file = directory / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=outside", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(directory / "key.pem"), "-out", str(file)],
        check=True, capture_output=True, timeout=60.0,
    )  # fmt: skip
    return file


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with outside(says(200), tls) as (url, asked):
        said = ping(url + SECRET)
        assert "certificate verify failed" in said.lower()
        assert [] == asked
        assert "" == ping(url + SECRET, str(certificate))
        other = url.replace("127.0.0.1", "localhost")
        assert "localhost" in ping(other + SECRET, str(certificate))
        assert [SECRET] == asked


def test_an_authority_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(SettingsError, match=r"^deadman\.ca_file: .*" + name):
            ping("https://127.0.0.1:1/", str(tmp_path / name))
