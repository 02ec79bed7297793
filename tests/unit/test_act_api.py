"""The API of the action service: who is let in, and what is read of a body before that."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actions.access import NEEDS, Access, Person, hashed, may
from actions.api import LOGGED_PER_MINUTE, Api
from actions.metrics import ActMetrics
from actions.notices import DRY_RUN, PAUSED, stranger
from actions.site import Site as Facts
from nodewarden.act_client import ActClient
from nodewarden.cli import run
from telemetry.actions import Command, Decision, Request, Verb, Where
from telemetry.attempts import Attempt
from telemetry.errors import InputError, SettingsError, SourceUnavailable
from telemetry.records import Control
from telemetry.settings import ActSettings
from tests.acting import SETTINGS, Instance, Site, asked, incident

TOKEN = "o" * 32
TOKENS = {
    "vera": hashed("v" * 32, "viewer"), "otto": hashed(TOKEN, "operator"),
    "anna": hashed("a" * 32, "admin"),
}  # fmt: skip


class Served:
    """An API over an instance that works until it is told to stop."""

    def __init__(self, *, dry_run: bool = False) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        address = f"127.0.0.1:{self.port}"
        self.settings = ActSettings(
            address=address, url=f"http://{address}", token=TOKEN, tokens=TOKENS,
            body_max_bytes=512,
        )  # fmt: skip
        self.site = Site(msgspec.structs.replace(SETTINGS, dry_run=dry_run))
        self.site.tell(incident(job="ask"))
        self.instance: Instance = self.site.start()
        self.instance.step(2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._stop.wait(0.01):
            self.instance.step()

    def __enter__(self) -> Served:
        self._api = Api(
            self.settings, self.instance.desk, self.site.clock.time_s, self.instance.metrics
        )
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

    def counted(self, name: str, **labels: str) -> float | None:
        """What the metric says now."""
        return self.instance.metrics.registry.get_sample_value(name, labels)


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


def told_controls(served: Served) -> list[Control]:
    """What the engine was told, once it was: after the answer."""
    until_s = time.monotonic() + 30.0
    while not served.site.controls and time.monotonic() < until_s:
        time.sleep(0.01)
    return served.site.controls


def audited(site: Site) -> list[tuple[str, str, bool]]:
    """Who asked for what, and whether it was taken."""
    found = [one for one in site.of(Request) if isinstance(one, Request)]
    return [(one.by, one.verb, one.accepted) for one in found]


def test_a_missing_or_forged_token_is_refused_counted_and_in_the_audit(served: Served) -> None:
    for token in (None, "forged"):
        assert served.asked("POST", "/v1/approve", b'{"target": "a"}', token)[0] == 401
    assert audited(served.site) == [("", "approve", False)] * 2
    assert served.counted("nodewarden_act_requests_total", verb="approve", accepted="false") == 2
    assert not served.site.of(Command)


def test_a_viewer_who_approves_is_refused_counted_and_in_the_audit(served: Served) -> None:
    status, body = served.asked("POST", "/v1/approve", b'{"target": "a"}', "v" * 32)
    assert (status, body) == (403, {"error": "vera is viewer: approve needs operator"})
    assert audited(served.site) == [("vera", "approve", False)]
    assert served.counted("nodewarden_act_requests_total", verb="approve", accepted="false") == 1
    assert not served.site.of(Command)


def test_an_expired_approval_is_refused_counted_and_in_the_audit(served: Served) -> None:
    served.site.clock.advance(served.site.settings.approval_s)
    status, body = served.asked("POST", "/v1/approve", b'{"target": "a"}')
    assert status == 409
    assert "expired" in str(body["error"])
    assert audited(served.site) == [("otto", "approve", False)]
    assert served.counted("nodewarden_act_requests_total", verb="approve", accepted="false") == 1
    assert not served.site.of(Command)


def test_a_standby_refuses_too_counts_it_and_says_that_no_audit_has_it(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.instance.active.stop()
    with caplog.at_level(logging.WARNING, "nodewarden.act"):
        assert served.asked("POST", "/v1/approve", b'{"target": "a"}', "forged")[0] == 401
        assert served.asked("POST", "/v1/approve", b'{"target": "a"}', "v" * 32)[0] == 403
        assert served.asked("POST", "/v1/approve", b'{"target": "a"}')[0] == 503
    refused = "nodewarden_act_refusals_standby_total"
    assert served.counted(refused, verb="approve", status="401") == 1
    assert served.counted(refused, verb="approve", status="403") == 1
    assert [one.message for one in caplog.records if "refused_unaudited" in one.message] == [
        "refused_unaudited verb=approve by=nobody status=401 no valid token",
        "refused_unaudited verb=approve by=vera status=403 vera is viewer: approve needs operator",
    ]
    assert audited(served.site) == []


def test_a_flood_at_a_standby_is_counted_and_does_not_fill_its_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.instance.active.stop()
    with caplog.at_level(logging.WARNING, "nodewarden.act"):
        for _ in range(LOGGED_PER_MINUTE + 5):
            assert served.asked("GET", "/v1/incidents", token="forged")[0] == 401
    counted = served.counted("nodewarden_act_refusals_standby_total", verb="read", status="401")
    assert counted == LOGGED_PER_MINUTE + 5
    assert sum("refused_unaudited" in one.message for one in caplog.records) == LOGGED_PER_MINUTE


TRIED = b'{"target": "a", "attempt": {"step": "checks", "at": 0, "incident": "", "nodes": ["n1"]}}'


def test_what_was_tried_is_audited_and_told_to_the_engine(served: Served) -> None:
    status, body = served.asked("POST", "/v1/tried", TRIED)
    assert (status, body["decisions"]) == (200, [])
    (request,) = [one for one in served.site.of(Request) if isinstance(one, Request)]
    attempt = Attempt(
        step="checks", at=request.at, incident="a", told=True, nodes=["n1"]
    )  # the service's word counts, not the asker's
    assert (request.by, request.accepted, request.attempt) == ("otto", True, attempt)
    (told,) = told_controls(served)
    assert (told.action, told.target, told.by, told.attempt) == ("attempted", "a", "otto", attempt)


@pytest.mark.parametrize(("body", "token", "status"), [
    (TRIED, "forged", 401), (TRIED, "v" * 32, 403), (TRIED.replace(b'"a"', b'"x"', 1), TOKEN, 404),
    (b'{"target": "a"}', TOKEN, 409), (TRIED.replace(b"checks", b"prayer"), TOKEN, 400),
    (TRIED.replace(b'["n1"]', b'"n1"'), TOKEN, 400),
    (TRIED.replace(b'["n1"]', b'["' + b"n" * 600 + b'"]'), TOKEN, 413),
])  # fmt: skip
def test_what_was_not_tried_by_who_may_say_so_is_not_told(
    body: bytes, token: str, status: int, served: Served
) -> None:
    assert served.asked("POST", "/v1/tried", body, token)[0] == status
    assert served.site.controls == []


def test_the_command_tells_what_was_tried(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    environ = {"NODEWARDEN_ACT__TOKEN": TOKEN}
    told = ["tried", "a", "--step", "retry", "--failed", "--config", str(file)]
    assert run(told, environ) == 0
    assert capsys.readouterr().out == "tried a: taken\n"
    (control,) = told_controls(served)
    assert control.attempt is not None
    assert control.attempt.worked is False
    assert run(["tried", "b", *told[2:]], environ) == 2
    assert capsys.readouterr().err == "nodewarden: no decision and no incident b\n"


ORDERS = [
    ["isolate", "n7"], ["release", "n7"], ["approve", "a"], ["false-alarm", "a"], ["resume"],
    ["update", "7", "--code", "v2"], ["rollback", "7"],
]  # fmt: skip


def ordered(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What each of them says, after what is needed for it to be taken."""
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    environ = {"NODEWARDEN_ACT__TOKEN": "a" * 32}
    where = {False: ["--config", str(file)], True: ["--settings", str(file)]}
    for version in ("v0", "v1"):
        assert 0 == run(["update", "7", "--code", version, "--running", *where[True]], environ)
    said = []
    for order in ORDERS:
        if order == ["resume"]:
            assert 0 == run(["pause", *where[False]], environ)
        capsys.readouterr()
        assert 0 == run([*order, *where[order[0] == "update"]], environ), capsys.readouterr().err
        said.append(capsys.readouterr().out.splitlines()[-1])
    return said


def test_an_order_in_a_dry_run_says_that_nothing_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Served(dry_run=True) as served:
        said = ordered(served, tmp_path, capsys)
    assert [f"{order[0]}: {DRY_RUN in line}" for order, line in zip(ORDERS, said, strict=True)] == [
        f"{order[0]}: True" for order in ORDERS
    ]


def test_an_order_that_is_done_says_nothing_of_the_kind(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not [line for line in ordered(served, tmp_path, capsys) if "dry run" in line]


def test_an_order_while_paused_says_that_nothing_is_done(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    environ, where = {"NODEWARDEN_ACT__TOKEN": TOKEN}, ["--config", str(file)]
    assert run(["pause", *where], environ) == 0
    assert capsys.readouterr().out == "pause: taken\n"
    assert run(["isolate", "n7", *where], environ) == 0
    said = capsys.readouterr().out
    assert f"isolated by otto; {PAUSED}, and after 60 s not at all" in said


@pytest.mark.parametrize(
    "words",
    [
        ["show", ""], ["show", " "], ["versions", ""], ["approve", ""], ["ack", ""],
        ["isolate", ""], ["rollback", ""], ["show", "\udcff"], ["ack", "\udcff"],
        ["ack", "a", "--note", "\udcff"], ["ack", "a", "--note", "x" * 1_001],
        ["snooze", "a", "--for", "nan"], ["tried", "a", "--step", "retry", "--group", "x" * 254],
        ["tried", "a", "--step", "retry", "--group", "\udcff"],
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line_and_usage(
    words: list[str], served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    assert 2 == run([*words, "--config", str(file)], {"NODEWARDEN_ACT__TOKEN": TOKEN})
    said = capsys.readouterr().err
    assert 1 == len(said.splitlines())
    assert "unexpected" not in said
    assert "the body" not in said


def test_a_node_or_a_job_that_the_inventory_does_not_know_is_a_warning() -> None:
    places = {"n1": Where(job="7")}
    assert "the inventory knows no node n2" == stranger("isolate", "n2", places)
    assert "the inventory knows no node n2" == stranger("release", "n2", places)
    assert "job 8" in stranger("update", "8", places)
    assert "job 8" in stranger("rollback", "8", places)
    assert not stranger("isolate", "n1", places)
    assert not stranger("update", "7", places)
    assert not stranger("isolate", "n2", {})  # nobody listed anything
    assert not stranger("ack", "n2", places)


@pytest.mark.parametrize("name", ["\0", " ", "n1,n2", "n[1-3]", "-x", "n1\n", "\u00e9", "x" * 254])
@pytest.mark.parametrize("verb", ["isolate", "release"])
def test_what_is_no_node_s_name_is_refused_before_anything_is_decided(
    verb: Verb, name: str
) -> None:
    site = Site()
    start = site.start()
    reply = start.ask(asked(verb, name))
    assert 409 == reply.status
    assert "is no node's name" in str(reply.body["error"])
    assert [] == [*site.of(Decision), *site.controls]


def test_an_update_is_urgent_or_runs_already() -> None:
    both = msgspec.structs.replace(
        asked("update", "7"), versions={"code": "v"}, urgent=True, running=True
    )
    assert 409 == Site().start().ask(both).status


def test_a_typo_in_a_node_s_name_is_answered_with_a_warning() -> None:
    site = Site()
    site.facts = Facts(places={"n1": Where()})
    start = site.start()
    start.step()
    reply = start.ask(asked("isolate", "n2"))
    assert (200, "the inventory knows no node n2") == (reply.status, reply.body["warning"])
    assert "" == start.ask(asked("isolate", "n1")).body["warning"]


def test_i9_a_bulk_release_names_each_node_and_warns_of_the_one_with_an_open_incident(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    environ = {"NODEWARDEN_ACT__TOKEN": TOKEN}
    where = ["--config", str(file)]
    assert run(["release", "cn[3-1]", *where], environ) == 2
    assert run(["release", "node-a,cn[121-123]", *where], environ) == 0
    said = capsys.readouterr()
    assert said.out.count("approved: released by otto") == 4
    assert said.err.splitlines()[1:] == ["warning: node-a still has open incidents: a"]
    targets = [one.target for one in served.site.of(Request) if isinstance(one, Request)]
    assert targets == ["node-a", "cn121", "cn122", "cn123"]


def test_a_persons_own_decision_is_shown_with_what_became_of_it(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
    environ, where = {"NODEWARDEN_ACT__TOKEN": TOKEN}, ["--config", str(file)]
    assert run(["isolate", "n7,n8", *where], environ) == 0
    name = capsys.readouterr().out.split()[0]
    said = ""
    for _ in range(500):
        assert run(["show", name, *where], environ) == 0
        said = capsys.readouterr().out
        if "outcome" in said:
            break
        time.sleep(0.01)
    assert "command" in said
    assert "outcome" in said
    assert "n7" in said
    assert "n8" not in said  # the other decision is of no incident too


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
    api = Api(ActSettings(address=address), site.start().desk, site.clock.time_s, ActMetrics())
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
