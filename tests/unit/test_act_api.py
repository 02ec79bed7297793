"""The API of the action service: who is let in, and what is read of a body before that."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from actions.access import NEEDS, Access, Person, hashed, may
from actions.api import Api
from nodewarden.act_client import ActClient
from nodewarden.cli import run
from telemetry.actions import Request
from telemetry.errors import InputError, SettingsError, SourceUnavailable
from telemetry.settings import ActSettings
from tests.acting import Instance, Site, incident

TOKEN = "o" * 32
TOKENS = {"vera": hashed("v" * 32, "viewer"), "otto": hashed(TOKEN, "operator")}


class Served:
    """An API over an instance that works until it is told to stop."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        address = f"127.0.0.1:{self.port}"
        self.settings = ActSettings(
            address=address, url=f"http://{address}", token=TOKEN, tokens=TOKENS,
            body_max_bytes=512,
        )  # fmt: skip
        self.site = Site()
        self.site.tell(incident(job="ask"))
        self.instance: Instance = self.site.start()
        self.instance.step(2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._stop.wait(0.01):
            self.instance.step()

    def __enter__(self) -> Served:
        self._api = Api(self.settings, self.instance.desk, self.site.clock.time_s)
        self._api.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._api.__exit__()

    def asked(
        self, method: str, path: str, body: bytes | None = None, token: str | None = TOKEN
    ) -> tuple[int, dict[str, object]]:
        """Status and answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        found = msgspec.json.decode(raw) if raw[:1] == b"{" else {}
        return answer.status, found


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as one:
        yield one


def test_who_has_no_token_of_ours_is_told_nothing(served: Served) -> None:
    for token in (None, "", "x", "V" * 32, TOKEN + "x", "o" * 4_000, "\u00e9" * 32):
        for method, path in (("GET", "/v1/incidents"), ("POST", "/v1/pause")):
            status, body = served.asked(method, path, token=token)
            assert (status, body) == (401, {"error": "no valid token"}), token


def test_a_body_of_nobody_is_not_read(served: Served) -> None:
    assert served.asked("POST", "/v1/approve", b"[" * 100_000, token="no")[0] == 401


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"{}", 400), (b"[]", 400), (b"{", 400), (b"\xff", 400),
    (b'{"target": "a", "who": "x"}', 400), (b'{"target": 7}', 400),
    (b'{"target": "a", "for_s": -1}', 400), (b'{"target": "a", "for_s": 1e99}', 400),
    (b"[" * 500, 400), (b'{"target": "' + b"a" * 300 + b'"}', 400), (b" " * 600, 413),
])  # fmt: skip
def test_a_body_that_cannot_be_meant_is_refused(body: bytes, status: int, served: Served) -> None:
    assert served.asked("POST", "/v1/snooze", body)[0] == status


def test_a_viewer_sees_and_does_nothing(served: Served) -> None:
    viewer = "v" * 32
    assert served.asked("GET", "/v1/decisions", token=viewer)[0] == 200
    assert served.asked("GET", "/v1/incidents/a", token=viewer)[0] == 200
    assert served.asked("POST", "/v1/approve", b'{"target": "a"}', viewer)[0] == 403
    refused = served.site.of(Request)
    assert [(one.by, one.role) for one in refused if isinstance(one, Request)] \
        == [("vera", "viewer")]  # fmt: skip


def test_the_client_says_in_one_line_what_is_wrong(served: Served) -> None:
    client = ActClient(served.settings)
    assert client.post("approve", {"target": "a"})["decisions"][0]["state"] == "approved"
    assert client.show("a")["incident"]["id"] == "a"
    with pytest.raises(InputError, match="does not wait for anybody"):
        client.post("approve", {"target": "a"})
    with pytest.raises(InputError, match="no incident"):
        client.show("x/../y?z")
    with pytest.raises(InputError, match="no decision and no incident"):
        client.post("ack", {"target": "nothing"})
    wrong = msgspec.structs.replace(served.settings, token="wrong")
    with pytest.raises(SettingsError, match="no valid token"):
        ActClient(wrong).get("incidents")


def test_without_a_service_a_token_or_a_url_the_client_says_so() -> None:
    with pytest.raises(SourceUnavailable, match="is act running"):
        ActClient(ActSettings(url="http://127.0.0.1:1", token="x")).get("incidents")
    with pytest.raises(SettingsError, match=r"act\.token"):
        ActClient(ActSettings())
    for url in ("ftp://x", "nothing", "http://"):
        with pytest.raises(SettingsError, match=r"act\.url"):
            ActClient(ActSettings(url=url, token="x"))


@pytest.mark.parametrize("address", ["", "here", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_cannot_be_served_is_refused(address: str) -> None:
    site = Site()
    api = Api(ActSettings(address=address), site.start().desk, site.clock.time_s)
    with pytest.raises(SettingsError, match=r"act\.address"):
        api.__enter__()


def test_roles_and_tokens() -> None:
    access = Access(TOKENS)
    assert access.who(f"Bearer {TOKEN}") == Person("otto", "operator")
    for header in (
        None,
        "",
        TOKEN,
        f"bearer {TOKEN}",
        f"Basic {TOKEN}",
        "Bearer ",
        "Bearer \udcff",
    ):
        assert access.who(header) is None
    viewer, operator, admin = (Person("x", role) for role in ("viewer", "operator", "admin"))
    assert {verb for verb in NEEDS if may(viewer, verb)} == {"read"}
    assert {verb for verb in NEEDS if not may(operator, verb)} == {"resume"}
    assert all(may(admin, verb) for verb in NEEDS)


@pytest.mark.parametrize(("environ", "named"), [
    ({"NODEWARDEN_ACT__DRY_RUN": "false"}, "act.dry_run"),
    ({"NODEWARDEN_ACT__ADDRESS": "nowhere"}, "act.address"),
    ({"NODEWARDEN_ACT__METRICS_ADDRESS": "nowhere"}, "act.metrics_address"),
    ({"NODEWARDEN_ACT__TOKENS__OTTO": "operator:plain-token"}, "NODEWARDEN_ACT__TOKENS__OTTO"),
    ({"NODEWARDEN_ACT__TOKENS__OTTO": "king:" + "0" * 64}, "NODEWARDEN_ACT__TOKENS__OTTO"),
    ({"NODEWARDEN_ACT__RAILS__MODE": '{isolate = "maybe"}'}, "NODEWARDEN_ACT__RAILS__MODE"),
    ({"NODEWARDEN_ENGINE__SHARD": "history"}, "engine.shard"),
])  # fmt: skip
def test_a_wrong_setting_stops_the_start_with_one_line(
    environ: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {"NODEWARDEN_ACT__METRICS_ADDRESS": "", "NODEWARDEN_ACT__ADDRESS": "127.0.0.1:0"}
    assert run(["act"], {**base, **environ}) == 2
    said = [one for one in capsys.readouterr().err.splitlines() if one.startswith("nodewarden: ")]
    assert len(said) == 1
    assert named in said[0]
    assert "plain-token" not in said[0]
