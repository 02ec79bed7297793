"""What the notifier keeps, repeats, acknowledges and forgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.notify.calls import Answer, Call
from actions.notify.http import UrllibHttp
from actions.notify.limits import Bucket
from actions.notify.store import Store
from telemetry.errors import SettingsError
from telemetry.testing import ManualClock
from tests.paging import Desk, incident, paging


def test_a_page_names_node_job_fault_verdict_and_where_to_read_on(tmp_path: Path) -> None:
    links = {"Report": "https://warden.example/i/{incident}"}
    image = "https://warden.example/i/{incident}.png"
    desk = Desk(tmp_path, paging(links=links, image_url=image))
    desk.tell(incident(job="train a"))
    desk.run(10.0)
    (event,) = desk.pagerduty.events
    payload = event["payload"]
    assert payload["summary"] == "gpu_lost on node-1, job train a: Xid 79 -> page"
    assert (payload["severity"], payload["source"]) == ("critical", "node:node-1")
    assert (payload["component"], payload["class"]) == ("node-1", "gpu_lost")
    assert payload["custom_details"]["verdict"] == "page: Xid 79 is certain."
    assert event["links"] == [{"href": "https://warden.example/i/incident-1", "text": "Report"}]
    assert event["images"][0]["src"] == "https://warden.example/i/incident-1.png"


def test_an_acknowledgement_is_passed_on_once_and_ends_the_repeats(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(10.0)
    assert 1 == desk.notifier.acknowledge("incident-1", "ada")
    desk.run(20_000.0)
    assert [action for action, _ in desk.pagerduty.log] == ["trigger", "acknowledge"]


def test_an_unanswered_page_is_said_again_under_its_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(14_400.0 * 2 + 60.0)
    assert ["trigger"] * 3 == [action for action, _ in desk.pagerduty.log]
    assert [1] == list(desk.pagerduty.pages_opened.values())


def test_a_graver_severity_and_another_verdict_are_news_and_new_evidence_is_none(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, paging())
    one = incident(severity="warning")
    desk.tell(one)
    desk.run(100.0)
    desk.tell(msgspec.structs.replace(one, rev=2, confidence=0.95))
    desk.run(100.0)
    assert 1 == len(desk.pagerduty.log)
    desk.tell(msgspec.structs.replace(one, rev=3, severity="critical"))
    desk.run(100.0)
    assert ["warning", "critical"] == [e["payload"]["severity"] for e in desk.pagerduty.events]


def test_an_older_revision_after_a_newer_one_changes_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    one = incident()
    desk.tell(one)
    desk.run(10.0)
    desk.tell(msgspec.structs.replace(one, rev=3, closed_at=desk.clock.time_s()))
    desk.tell(one)
    desk.run(400.0)
    assert [] == desk.pagerduty.still_open()
    desk.restart(paging())
    desk.tell(one)
    desk.run(100.0)
    assert [1] == list(desk.pagerduty.pages_opened.values())


def test_a_merged_incident_ends_with_its_own_page(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    one = incident()
    desk.tell(one)
    desk.run(10.0)
    desk.tell(msgspec.structs.replace(one, rev=2, merged_into="incident-9"))
    desk.run(400.0)
    assert [] == desk.pagerduty.still_open()


def test_an_isolation_is_a_change_event_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    for _ in range(2):
        desk.notifier.changed("command-1", "incident-1", "node-1 isolated", ["node-1"])
        desk.run(10.0)
        desk.notifier.save()
        desk.restart(paging())
    (change,) = desk.pagerduty.changes
    assert change["payload"]["summary"] == "node-1 isolated"
    assert change["payload"]["custom_details"]["targets"] == "node-1"


def test_a_critical_that_came_and_went_while_pagerduty_was_down_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.pagerduty.down = True
    one, minor = incident(), incident(2, node="node-2", severity="warning")
    desk.tell(one, minor)
    desk.run(60.0)
    for open_ in (one, minor):
        desk.tell(msgspec.structs.replace(open_, rev=2, closed_at=desk.clock.time_s()))
    desk.run(60.0)
    desk.pagerduty.down = False
    desk.run(600.0)
    assert ["trigger", "resolve"] == [action for action, _ in desk.pagerduty.log]
    assert "node-1" in desk.pagerduty.log[0][1]


@pytest.mark.parametrize("form", ["slack", "json"])
def test_a_webhook_hears_of_beginning_and_end_and_calls_nobody_by_a_jobs_name(
    tmp_path: Path, form: str
) -> None:
    desk = Desk(
        tmp_path,
        paging(
            receivers={"chat": {"kind": "webhook", "url": "http://127.0.0.1:1/", "format": form}},
            route={"receiver": "chat"},
        ),
    )
    one = incident(job="<!channel> & co")
    desk.tell(one)
    desk.run(10.0)
    desk.tell(msgspec.structs.replace(one, rev=2, closed_at=desk.clock.time_s()))
    desk.run(400.0)
    first, last = desk.chat.bodies
    if form == "slack":
        assert "&lt;!channel&gt; &amp; co" in first["text"]
        assert "Resolved: " in last["text"]
    else:
        assert [first["event"], last["event"]] == ["trigger", "resolve"]
        assert first["key"] == last["key"]


def test_a_bucket_never_lets_more_through_within_any_minute() -> None:
    clock = ManualClock()
    bucket, calls = Bucket(120, clock), []
    clock.advance(600.0)
    for _ in range(6_000):
        if bucket.take():
            calls.append(clock.monotonic_s())
        clock.advance(0.05)
    assert max(sum(start <= at < start + 60.0 for at in calls) for start in calls) <= 120
    assert len(calls) > 450  # and it is no miser


def test_a_damaged_state_is_put_aside_and_paging_goes_on(tmp_path: Path) -> None:
    (tmp_path / "notify.db").write_bytes(b"no database at all" * 100)
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(10.0)
    assert 1 == len(desk.pagerduty.log)
    assert (tmp_path / "notify.damaged").is_file()


def test_only_its_owner_reads_the_state(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    assert 0o600 == store.path.stat().st_mode & 0o777
    store.close()


def test_a_state_directory_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(SettingsError, match=r"notify\.state_dir"):
        Store(tmp_path / "file")


def test_no_answer_is_told_by_its_reason_and_without_the_url() -> None:
    http = UrllibHttp("chat", paging().receivers["chat"])
    answer: Any = http.post(Call("http://127.0.0.1:1/hook/SECRET", {}, json.dumps({}).encode()))
    assert not isinstance(answer, Answer)
    assert answer.reason == "connect"
    assert "SECRET" not in repr(answer)
    assert "SECRET" not in repr(Call("http://127.0.0.1:1/hook/SECRET", {}, b""))
    http.close()


def test_what_was_inhibited_and_then_was_not_is_told_though_nobody_could_be_reached(
    tmp_path: Path,
) -> None:
    rule = {"source_matchers": ['kind="fabric"'], "target_matchers": ['kind="gpu_lost"']}
    desk = Desk(tmp_path, paging(inhibit=[rule]))
    leaf = incident("leaf", scope="leaf:leaf-9", kind="fabric", severity="info")
    one = incident()
    desk.pagerduty.down = True
    desk.tell(leaf, one)
    desk.run(30.0)
    desk.tell(msgspec.structs.replace(leaf, rev=2, closed_at=desk.clock.time_s()))
    desk.run(30.0)
    desk.tell(msgspec.structs.replace(one, rev=2, closed_at=desk.clock.time_s()))
    desk.run(30.0)
    desk.pagerduty.down = False
    desk.run(600.0)
    assert ["trigger", "resolve"] == [action for action, _ in desk.pagerduty.log]


def test_what_was_inhibited_all_along_is_never_told(tmp_path: Path) -> None:
    rule = {"source_matchers": ['kind="fabric"'], "target_matchers": ['kind="gpu_lost"']}
    desk = Desk(tmp_path, paging(inhibit=[rule]))
    leaf = incident("leaf", scope="leaf:leaf-9", kind="fabric", severity="info")
    both = (leaf, incident())
    desk.tell(*both)
    desk.run(30.0)
    desk.tell(*[msgspec.structs.replace(x, rev=2, closed_at=desk.clock.time_s()) for x in both])
    desk.run(600.0)
    assert [] == desk.pagerduty.log
