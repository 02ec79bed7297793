"""A recovery that is a person's, through the real notifier: paged, kept open, and resolved."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from actions.escalations import Case, escalation
from tests.paging import Desk, incident, paging


def test_it_is_paged_beside_its_incident_and_outlives_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    story = incident(job="7", severity="warning")
    desk.tell(story)
    desk.run(100.0)
    case = Case("d1", story.id, "7", desk.clock.time_s(), "job 7 is a person's now: it stands")
    desk.tell(escalation(case, story))
    desk.run(100.0)
    said = json.dumps(desk.pagerduty.events[-1])
    assert "job 7 is a person's now: it stands" in said
    assert desk.pagerduty.events[-1]["payload"]["severity"] == "critical"
    desk.tell(msgspec.structs.replace(story, rev=5, closed_at=desk.clock.time_s()))
    desk.run(1_000.0)
    assert "triggered" in desk.pagerduty.pages.values()
    desk.tell(escalation(case, story, desk.clock.time_s()))
    desk.run(1_000.0)
    assert set(desk.pagerduty.pages.values()) == {"resolved"}


def test_told_again_by_another_instance_it_is_one_page(tmp_path: Path) -> None:
    desk = Desk(tmp_path, paging())
    story = incident(job="7")
    case = Case("d1", story.id, "7", desk.clock.time_s(), "job 7 is a person's now: it stands")
    desk.tell(escalation(case, story))
    desk.run(100.0)
    desk.tell(escalation(case, story))
    desk.run(100.0)
    assert len(desk.pagerduty.events) == 1
