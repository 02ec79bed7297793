"""What users of other tools asked of paging (groups G and H), each by its label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.notify.calls import Answer, NoAnswer
from actions.notify.text import KEY_MAX, SUMMARY_MAX, dedup_key
from telemetry.actions import Decision, Rail, Where
from telemetry.testing import ManualClock
from tests.paging import Desk, incident, paging


def closed(one: Any, at: float, rev: int = 2) -> Any:
    return msgspec.structs.replace(one, rev=rev, closed_at=at)


def leaf_of(node: str) -> Where | None:
    return Where(leaf="leaf-9") if node.startswith("behind-") else None


INHIBIT = [{
    "source_matchers": ['scope_kind="leaf"'], "target_matchers": ['scope_kind="node"'],
    "equal": ["leaf"],
}]  # fmt: skip


def test_g1_a_storm_of_2000_incidents_stays_within_the_limit_and_loses_no_critical(
    tmp_path: Path,
) -> None:
    """2,000 in 5 s, the endpoint down for a minute, one leaf switch with 64 nodes among them."""
    desk = Desk(tmp_path, paging(inhibit=INHIBIT), leaf_of)
    storm = [incident("leaf", scope="leaf:leaf-9", kind="fabric", cause="network")]
    storm += [incident(f"b{n}", node=f"behind-{n}", kind="node_silent") for n in range(64)]
    storm += [incident(f"c{n}", node=f"critical-{n}") for n in range(300)]
    storm += [incident(f"w{n}", node=f"warn-{n}", severity="warning") for n in range(1_635)]
    assert len(storm) == 2_000
    desk.pagerduty.down = True
    for start in range(0, 2_000, 400):
        desk.tell(*storm[start : start + 400])
        desk.run(1.0)
    desk.run(60.0)
    desk.pagerduty.down = False
    desk.run(600.0)

    assert desk.pagerduty.statuses == {202: desk.pagerduty.statuses[202]}
    told = {key for action, key in desk.pagerduty.log if action == "trigger"}
    for number in range(300):
        key = dedup_key({"cluster": "main", "scope": f"node:critical-{number}", "kind": "gpu_lost"})
        assert key in told
    assert 1 == sum("leaf-9" in key for key in told)
    assert not any("behind-" in key for key in told)
    assert len(told) < 400  # the others are within one page
    assert set(desk.pagerduty.pages_opened.values()) == {1}

    desk.tell(*[closed(one, desk.clock.time_s()) for one in storm])
    desk.run(1_200.0)
    assert [] == desk.pagerduty.still_open()
    assert [] == desk.pagerduty.lost_resolves
    assert 0 == desk.notifier.open_pages()
    assert desk.pagerduty.statuses.keys() == {202}
    assert set(desk.pagerduty.pages_opened.values()) == {1}


def test_g1_criticals_go_before_warnings(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging(storm_pages=1_000))
    warnings = [incident(f"w{n}", node=f"w-{n}", severity="warning") for n in range(100)]
    desk.tell(*warnings, *[incident(f"c{n}", node=f"c-{n}") for n in range(50)])
    desk.run(120.0)
    severities = [event["payload"]["severity"] for event in desk.pagerduty.events]
    assert severities == ["critical"] * 50 + ["warning"] * 100


def test_g1_a_rolled_up_incident_that_becomes_critical_gets_its_own_page(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging(storm_pages=5))
    storm = [incident(n, node=f"n-{n}", severity="warning") for n in range(20)]
    desk.tell(*storm)
    desk.run(30.0)
    assert 1 == len(desk.pagerduty.pages)
    assert "20 incidents" in desk.pagerduty.events[0]["payload"]["summary"]
    desk.tell(msgspec.structs.replace(storm[3], severity="critical", rev=2))
    desk.run(30.0)
    assert any("n-3" in key for _, key in desk.pagerduty.log)
    desk.tell(*[msgspec.structs.replace(one, severity="critical", rev=2) for one in storm])
    desk.run(400.0)
    assert ["resolve"] == [a for a, key in desk.pagerduty.log if "storm" in key][-1:]
    desk.tell(*[closed(one, desk.clock.time_s(), rev=3) for one in storm])
    desk.run(500.0)
    assert [] == desk.pagerduty.still_open()


def test_g2_distinct_faults_are_distinct_pages(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    flap = incident(3, node="node-a", kind="nic_flap", cause="network")
    desk.tell(incident(1, node="node-a"), incident(2, node="node-b"), flap)
    desk.run(20.0)
    assert 3 == len(desk.pagerduty.pages)


def test_g3_keys_are_deterministic_and_within_255_characters() -> None:
    names = {"cluster": "main", "scope": "node:" + "n" * 200, "job": "j" * 200}
    key = dedup_key(names)
    assert len(key) == KEY_MAX
    assert key == dedup_key(dict(reversed(names.items())))
    assert key != dedup_key({**names, "job": "j" * 199 + "k"})
    assert dedup_key({"a": "1,b=2"}) != dedup_key({"a": "1", "b": "2"})


def test_g3_the_same_fault_after_a_restart_has_the_same_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "a", paging())
    desk.tell(incident())
    desk.run(10.0)
    other = Desk(tmp_path / "b", paging())
    other.tell(incident(rev=7))
    other.run(10.0)
    assert desk.pagerduty.log == other.pagerduty.log != []


def test_g4_long_texts_are_cut_on_a_character_border_and_large_details_dropped(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, paging())
    long = incident(1, text="é\u0301漢字👩‍🚀" * 1_000)
    bulky = [incident(f"x{n}", node="bulk", text="漢" * 5_000) for n in range(2_500)]
    desk.tell(long, *bulky)
    desk.run(30.0)
    assert desk.pagerduty.statuses.keys() == {202}
    for event in desk.pagerduty.events:
        assert len(event["payload"]["summary"]) <= SUMMARY_MAX
    large = next(e for e in desk.pagerduty.events if "bulk" in e["dedup_key"])
    assert "left out" in large["payload"]["custom_details"]["details"]


def test_g4_an_event_that_is_refused_goes_out_again_in_its_smallest_form(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.pagerduty.answers.append(Answer(400, b"invalid event"))
    desk.tell(incident())
    desk.run(10.0)
    (event,) = desk.pagerduty.events
    assert event["payload"].keys() == {"summary", "source", "severity"}


def test_g4_an_event_that_is_refused_for_good_is_told_to_the_second_channel(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.pagerduty.answers.extend([Answer(400)] * 2)
    desk.tell(incident())
    desk.run(10.0)
    assert 1.0 == desk.count("refused_total", receiver="oncall")
    assert "gpu_lost on node-1" in desk.chat.bodies[0]["text"]


def test_g5_a_resolve_goes_to_the_routing_key_of_its_trigger(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(10.0)
    changed = paging(
        receivers={
            "oncall": {"kind": "pagerduty", "routing_key": "N" * 32},
            "chat": {"kind": "webhook", "url": "http://127.0.0.1:1/"},
        }
    )
    desk.restart(changed)
    desk.tell(closed(incident(), desk.clock.time_s()))
    desk.run(400.0)
    assert [] == desk.pagerduty.lost_resolves
    assert [] == desk.pagerduty.still_open()


def test_g5_a_receiver_that_is_gone_from_the_settings_still_gets_its_resolve(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(10.0)
    renamed = paging(
        receivers={"night": {"kind": "pagerduty", "routing_key": "N" * 32}},
        route={"receiver": "night"},
    )
    desk.restart(renamed)
    desk.tell(closed(incident(), desk.clock.time_s()))
    desk.run(400.0)
    assert [] == desk.pagerduty.still_open()


def test_g6_flapping_every_90_s_for_two_hours_is_one_page_and_one_resolve(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    for number in range(40):
        one = incident(number, at=desk.clock.time_s())
        desk.tell(one)
        desk.run(90.0)
        desk.tell(closed(one, desk.clock.time_s()))
        desk.run(90.0)
    desk.run(600.0)
    assert [1] == list(desk.pagerduty.pages_opened.values())
    assert 1 == sum(action == "resolve" for action, _ in desk.pagerduty.log)
    assert any("flapping" in e.get("payload", {}).get("summary", "") for e in desk.pagerduty.events)


def test_g6_what_comes_back_after_its_resolve_pages_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    for number in range(2):
        one = incident(number, at=desk.clock.time_s())
        desk.tell(one)
        desk.run(30.0)
        desk.tell(closed(one, desk.clock.time_s()))
        desk.run(400.0)
    assert [2] == list(desk.pagerduty.pages_opened.values())


def test_g7_nothing_is_resolved_but_by_evidence(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.tell(incident())
    desk.run(10.0)
    desk.clock.advance(86_400.0)  # the engine, or we, stood still
    desk.run(60.0)
    assert ["triggered"] == list(desk.pagerduty.pages.values())


def test_g8_two_action_services_page_once(tmp_path: Path) -> None:
    clock = ManualClock()
    first = Desk(tmp_path / "1", paging(), clock=clock)
    second = Desk(tmp_path / "2", paging(), clock=clock)
    second.pagerduty = first.pagerduty
    second.start(paging())
    for desk in (first, second):
        desk.tell(incident())
    first.run(10.0)
    second.run(10.0)
    assert 2 == len(first.pagerduty.log)
    assert [1] == list(first.pagerduty.pages_opened.values())


def test_g9_live_replayed_and_by_hand_have_one_key(tmp_path: Path) -> None:
    """There is one way from an incident to its labels, and from labels to the key."""
    from actions.notify.routing import Router

    router = Router(paging(), "main")
    one = incident()
    again = msgspec.json.decode(msgspec.json.encode(one), type=type(one))
    by_hand = {"severity": "critical", "kind": "gpu_lost", "scope": "node:node-1"}
    keys = {
        router.route(one, None)[0].key,
        router.route(again, None)[0].key,
        router.deliveries(router.completed(by_hand))[0].key,
    }
    assert 1 == len(keys)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(401), "auth"), (Answer(403), "auth"), (Answer(429), "rate"),
        (Answer(500), "server"), (Answer(503), "server"), (NoAnswer("timeout"), "timeout"),
        (NoAnswer("connect"), "connect"), (NoAnswer("tls"), "tls"),
    ],
)  # fmt: skip
def test_g10_failures_are_counted_by_reason_and_the_second_channel_is_told(
    tmp_path: Path, answer: Answer | NoAnswer, reason: str
) -> None:
    desk = Desk(tmp_path, paging())
    desk.pagerduty.answers.extend([answer] * 3)
    desk.tell(incident())
    desk.run(150.0)
    assert 3.0 == desk.count("failed_total", receiver="oncall", reason=reason)
    assert 1 == sum("gpu_lost on node-1" in body["text"] for body in desk.chat.bodies)
    assert [1] == list(desk.pagerduty.pages_opened.values())  # and it was paged in the end


def test_g10_two_failures_do_not_wake_the_second_channel(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    desk.pagerduty.answers.extend([Answer(500)] * 2)
    desk.tell(incident())
    desk.run(60.0)
    assert [] == desk.chat.bodies


def test_h9_a_decision_within_maintenance_pages_nobody(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    one = incident()
    quiet = Decision(
        id="d", incident=one.id, rev=1, at=one.opened_at, verdict=one.verdict, mode="observe",
        rails=[Rail("maintenance", False, "window night, 600 s to go")], state="refused",
        reason="maintenance",
    )  # fmt: skip
    desk.notifier.take(one, quiet)
    desk.run(30.0)
    assert [] == desk.pagerduty.log
    over = msgspec.structs.replace(quiet, rails=[])
    desk.notifier.take(msgspec.structs.replace(one, rev=2), over)
    desk.run(30.0)
    assert 1 == len(desk.pagerduty.log)


def test_secrets_stand_in_no_message_and_no_representation() -> None:
    settings = paging()
    assert "R" * 32 not in repr(settings)
    assert "SECRET" not in repr(settings)
    assert "SECRET" not in json.dumps(repr(settings.receivers))
