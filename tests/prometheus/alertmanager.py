"""A real Alertmanager for tests, and the webhook that it pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.kafka.broker import free_port

SCRIPT = Path(__file__).parents[2] / "deploy" / "local" / "alertmanager.sh"
VERB_MAX_S = 60.0
WAIT_MAX_S = 90.0


class AlertmanagerMissing(Exception):
    """It cannot be run on this machine."""


class Hook:
    """Keeps what Alertmanager posts."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        posts = self.posts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Alertmanager:
    """One server of the test's own."""

    def __init__(self, directory: Path, settings: str) -> None:
        if not (shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")):
            raise AlertmanagerMissing("a real Alertmanager is needed, which is not installed")
        self._directory, self._port = directory, free_port()
        directory.mkdir(parents=True)
        file = directory / "settings.yml"
        file.write_text(settings, "utf-8")
        self.url = f"http://127.0.0.1:{self._port}"
        self._verb("start", str(self._port), str(file))

    def alerts(self) -> list[dict[str, Any]]:
        """What it holds: labels, status with inhibitedBy."""
        with urlopen(f"{self.url}/api/v2/alerts", timeout=10) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())
        return found

    def stop(self) -> None:
        self._verb("stop")

    def _verb(self, verb: str, *arguments: str) -> None:
        subprocess.run(
            [str(SCRIPT), verb, str(self._directory), *arguments], stdin=subprocess.DEVNULL,
            timeout=VERB_MAX_S, check=True, env=dict(os.environ),
        )  # fmt: skip


def until(what: Callable[[], bool]) -> None:
    """Wait for the real server; fails after WAIT_MAX_S."""
    end = time.monotonic() + WAIT_MAX_S
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
