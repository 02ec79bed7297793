"""The routing tree as people know it from Alertmanager, and what a notify file may not say."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.notify.inhibition import Inhibitor
from actions.notify.labels import Labeller
from actions.notify.matchers import parse_matcher
from actions.notify.routing import Router
from actions.notify.text import cut, dedup_key
from nodewarden.cli import run
from nodewarden.notify_file import parse_notify, read_notify_file, with_secrets
from telemetry.errors import SettingsError
from tests.paging import incident, paging

FILE = """
links = { "Incident" = "https://warden.example/incidents/{incident}" }

[[label_rules]]
matchers = ['cause="network"']
set = { team = "fabric" }

[receivers.oncall]
kind = "pagerduty"
routing_key = "SECRETSECRETSECRETSECRETSECRET32"
fallback = "chat"

[receivers.fabric]
kind = "pagerduty"
routing_key_file = "fabric.key"

[receivers.chat]
kind = "webhook"
url = "https://hooks.example/services/SECRET"

[route]
receiver = "chat"
group_by = ["cluster", "scope", "kind"]
repeat_interval_s = 3600.0

[[route.routes]]
receiver = "fabric"
matchers = ['team="fabric"', 'severity=~"critical|warning"']
continue = true

[[route.routes]]
receiver = "oncall"
matchers = ['severity="critical"']
group_wait_s = 10.0

[[route.routes.routes]]
matchers = ['job=~"train-.*"']
group_by = ["job"]

[[inhibit]]
source_matchers = ['scope_kind="leaf"']
target_matchers = ['scope_kind="node"']
equal = ["leaf"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "notify.toml"
    written.write_text(FILE, "utf-8")
    written.chmod(0o600)
    return written


def routed(file: Path, **labels: str) -> list[tuple[str, dict[str, str]]]:
    router = Router(read_notify_file(file, "main"), "main")
    found = router.deliveries(router.completed(labels))
    return [(one.receiver, one.group) for one in found]


def test_the_deepest_route_that_takes_it_tells_and_continue_goes_on(file: Path) -> None:
    both = routed(file, cause="network", severity="critical", job="train-7", scope="leaf:l1")
    assert [receiver for receiver, _ in both] == ["fabric", "oncall"]
    assert both[1][1] == {"job": "train-7"}
    assert [r for r, _ in routed(file, cause="hardware", severity="critical")] == ["oncall"]
    assert [r for r, _ in routed(file, cause="network", severity="info")] == ["chat"]


def test_what_a_route_does_not_say_is_its_parents(file: Path) -> None:
    router = Router(read_notify_file(file, "main"), "main")
    (one,) = router.deliveries({"severity": "critical", "job": "train-7"})
    assert (one.timing.wait_s, one.timing.repeat_s) == (10.0, 3_600.0)
    assert one.path == ("route", "route.routes[1]", "route.routes[1].routes[0]")


def test_an_incident_has_the_labels_that_people_route_by() -> None:
    found = Labeller(paging(labels={"site": "north"}), "main").labels(incident(), None)
    assert found == {
        "site": "north", "cluster": "main", "incident": "incident-1", "cause": "hardware",
        "kind": "gpu_lost", "severity": "critical", "job": "train", "scope": "node:node-1",
        "scope_kind": "node", "node": "node-1", "action": "page",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ('team="a"', "a", True), ('team="a"', "b", False), ("team=a", "a", True),
        ('team!="a"', "", True), ('team=~"a|b"', "b", True), ('team=~"a"', "aa", False),
        ('team!~"a.*"', "ab", False), ('team=""', "", True), (r'team="a\"b"', 'a"b', True),
    ],
)  # fmt: skip
def test_matchers_are_those_of_alertmanager(text: str, value: str, holds: bool) -> None:
    assert parse_matcher(text, "here").matches({"team": value} if value else {}) is holds


def test_an_inhibitor_knows_only_what_is_open() -> None:
    rule = {"source_matchers": ['a="1"'], "target_matchers": ['b="1"'], "equal": ["leaf"]}
    inhibitor = Inhibitor(paging(inhibit=[rule]))
    inhibitor.open("source", {"a": "1", "leaf": "x"})
    assert inhibitor.by("target", {"b": "1", "leaf": "x"}) == "source"
    assert inhibitor.by("target", {"b": "1", "leaf": "y"}) == ""
    assert inhibitor.by("like", {"a": "1", "b": "1", "leaf": "x"}) == ""
    inhibitor.open("source", {"a": "2", "leaf": "x"})
    assert inhibitor.by("target", {"b": "1", "leaf": "x"}) == ""


@given(st.text(), st.integers(10, 80))
def test_a_cut_text_is_a_beginning_and_within_the_limit(text: str, most: int) -> None:
    found = cut(text, most)
    assert len(found) <= most
    assert text.startswith(found.removesuffix("…").rstrip())


@given(st.dictionaries(st.text(), st.text(), max_size=5), st.dictionaries(st.text(), st.text()))
def test_different_groups_have_different_keys(a: dict[str, str], b: dict[str, str]) -> None:
    def plain(labels: dict[str, str]) -> dict[str, str]:
        return {
            f"l{ord(name[0]) if name else 0}": value.encode("utf-8", "replace").decode()
            for name, value in labels.items()
        }

    a, b = plain(a), plain(b)
    assert (dedup_key(a) == dedup_key(b)) == (a == b)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"route": {"receiver": "nobody"}}, "no receiver 'nobody'"),
        ({"route": {"reciever": "chat"}}, "route.reciever: unknown key; did you mean receiver?"),
        ({"route": {"receiver": "chat", "routes": [{"matchers": ["severity"]}]}}, "is no matcher"),
        ({"route": {"receiver": "chat", "routes": [{"matchers": ['a=~"("']}]}}, "routes[0].match"),
        ({"route": {"receiver": "chat", "group_by": ["state"]}}, "state changes while it lasts"),
        ({"route": {"receiver": "chat", "group_wait_s": "10"}}, "group_wait_s: expected float"),
        ({"route": {"receiver": "chat", "matchers": ["a=b"]}}, "the root takes everything"),
        ({"labels": {"node": "x"}}, "node is nodewarden's own label"),
        ({"image_url": "http://x/y.png"}, "image_url: no URL as https"),
        ({"receivers": {"chat": {"kind": "slack"}}}, "receivers.chat.kind: 'slack' is none of "),
        ({"receivers": {"chat": {"url": "http://x"}}}, "receivers.chat.kind: is missing"),
        ({"receivers": {"a b": {"kind": "webhook", "url": "http://x"}}}, "letters, digits"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Router(paging(**changes), "main")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("pager", "pagers", "matcher", "is_refused"),
    [
        ("pagerduty", {}, 'severity="critical"', True),
        ("alertmanager", {}, 'severity="critical"', False),
        ("pagerduty", {"info": "alertmanager"}, 'severity="info"', False),
        ("pagerduty", {"info": "alertmanager"}, 'severity=~"info|warning"', True),
        ("none", {}, 'cause="network"', True),
    ],
)
def test_one_way_pages_for_a_severity_and_two_are_refused(
    pager: str, pagers: dict[str, str], matcher: str, is_refused: bool
) -> None:
    settings = paging(
        pager=pager, pagers=pagers,
        receivers={"am": {"kind": "alertmanager", "url": "http://127.0.0.1:9093"}},
        route={"routes": [{"receiver": "am", "matchers": [matcher]}]},
    )  # fmt: skip
    if not is_refused:
        Router(settings, "main")
        return
    with pytest.raises(SettingsError, match="one way pages for a severity"):
        Router(settings, "main")


def test_both_pagers_for_one_severity_are_refused_whichever_is_chosen() -> None:
    routes = [
        {"receiver": "oncall", "matchers": ['severity="critical"'], "continue": True},
        {"receiver": "am", "matchers": ['severity="critical"']},
    ]
    receivers = {
        "oncall": {"kind": "pagerduty", "routing_key": "R" * 32},
        "am": {"kind": "alertmanager", "url": "http://127.0.0.1:9093"},
    }
    for pager in ("pagerduty", "alertmanager"):
        with pytest.raises(SettingsError, match="one way pages"):
            Router(paging(pager=pager, receivers=receivers, route={"routes": routes}), "main")
    receivers["am"]["paging"] = False  # type: ignore[assignment]
    Router(paging(receivers=receivers, route={"routes": routes}), "main")


def test_fallbacks_do_not_go_in_circles() -> None:
    receivers = {
        name: {"kind": "webhook", "url": "http://x", "fallback": other}
        for name, other in (("a", "b"), ("b", "a"))
    }
    with pytest.raises(SettingsError, match="it leads back to a"):
        Router(paging(receivers=receivers, route={"receiver": "a"}), "main")


def test_secrets_are_read_from_their_files_and_never_said(tmp_path: Path, file: Path) -> None:
    key = tmp_path / "fabric.key"
    text = FILE.replace("fabric.key", str(key))
    file.write_text(text, "utf-8")
    settings = read_notify_file(file, "main")
    with pytest.raises(SettingsError, match="No such file"):
        with_secrets(settings, str(file))
    key.write_text("K" * 32 + "\n", "utf-8")
    read = with_secrets(settings, str(file))
    assert read.receivers["fabric"].routing_key == "K" * 32
    assert "KKKK" not in repr(read)
    file.write_text(text.replace('url = "https://', 'url = "ftp://'), "utf-8")
    with pytest.raises(SettingsError) as refused:
        read_notify_file(file, "main")
    assert "SECRET" not in str(refused.value)


def test_secrets_for_everybody_to_read_are_refused(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(SettingsError, match=r"oncall\.routing_key: everybody can read that file"):
        read_notify_file(file, "main")


def environ(file: Path) -> dict[str, str]:
    return {**os.environ, "NODEWARDEN_NOTIFY__FILE": str(file)}


def test_routes_test_shows_the_way_of_some_labels(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == run(["routes", "test", "severity=critical", "cause=network"], environ(file))
    shown = capsys.readouterr().out
    assert "team=fabric" in shown
    assert "fabric (pagerduty)\n  way: route > route.routes[0]" in shown
    assert "oncall (pagerduty)" in shown
    assert "after 3 failed calls also: chat" in shown
    assert "SECRET" not in shown


def test_routes_test_takes_an_incident_as_the_list_prints_it(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nodewarden.replaying import incident_object

    printed = tmp_path / "incident.json"
    printed.write_text(json.dumps({"incidents": [incident_object(incident())]}), "utf-8")
    words = ["routes", "test", "--incident", str(printed), "--json"]
    assert 0 == run(words, environ(file))
    found = json.loads(capsys.readouterr().out)
    assert [one["receiver"] for one in found["receivers"]] == ["oncall"]
    assert found["receivers"][0]["key"] == "nodewarden:cluster=main,kind=gpu_lost,scope=node:node-1"


@pytest.mark.parametrize(
    "words",
    [["severity=fatal"], ["critical"], [], ["--incident", "/nowhere"], ["--incident", "/dev/null"]],
)
def test_routes_test_refuses_in_one_line(
    file: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(["routes", "test", *words], environ(file))
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_routes_show_prints_the_tree(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["routes", "show"], environ(file))
    assert '  {severity="critical"} -> oncall\n    {job=~"train-.*"}' in capsys.readouterr().out


def test_without_a_notify_file_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["routes", "test", "severity=critical"], {})
    assert "notify.file" in capsys.readouterr().err


def test_the_notify_file_of_the_page_on_paging_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "paging.md").read_text("utf-8")
    shown = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    Router(parse_notify(tomllib.loads(shown[1]), "paging.md"), "main")


def test_config_check_reads_the_notify_file_too(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == run(["config", "check"], environ(file))
    file.write_text(FILE.replace('receiver = "chat"', 'receiver = "cat"'), "utf-8")
    assert 2 == run(["config", "check"], environ(file))
    assert "no receiver 'cat'" in capsys.readouterr().err
