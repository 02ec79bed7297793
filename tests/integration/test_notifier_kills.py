"""kill -9 in the middle of what is to be told: nothing that was saved is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from telemetry.testing import ManualClock
from tests.paging import Desk, paging

ROOT = Path(__file__).parents[2]


class Endpoint:
    """Answers 202 to the first calls and 503 from then on; keeps the keys that it took."""

    def __init__(self, take: int) -> None:
        self.taken: list[str] = []
        self.enough = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                well = len(outer.taken) < take
                if well:
                    outer.taken.append(event["dedup_key"])
                else:
                    outer.enough.set()
                self.send_response(202 if well else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(params=[0, 1, 3])
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    made = Endpoint(request.param)
    yield made
    made.close()


def test_what_was_saved_is_told_after_the_kill_and_a_repeat_opens_no_second_page(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.dying_notifier", str(tmp_path), endpoint.url],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    saved = 0
    for line in process.stdout:
        saved = int(line) + 1
        if saved >= 100:
            break
    assert endpoint.enough.wait(60.0)
    process.kill()
    saved = max([saved, *[int(line) + 1 for line in process.stdout]])
    process.wait()
    process.stdout.close()
    settings = paging(route={"receiver": "oncall", "group_wait_s": 0.0})
    desk = Desk(tmp_path, settings, clock=ManualClock(time.time()))
    desk.run(300.0)
    keys = [key for _, key in desk.pagerduty.log]
    assert len(keys) == len(set(keys))
    for number in range(saved):
        key = f"nodewarden:cluster=main,kind=gpu_lost,scope=node:node-{number}"
        assert key in {*keys, *endpoint.taken}, number
    again = {*keys}.intersection(endpoint.taken)
    assert len(again) <= 1  # the call that was under way; its key makes it the same page
