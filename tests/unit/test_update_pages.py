"""An update that changed what is learned is a page: by its severity, once, and over in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from actions.reruns import NOT_FINITE
from actions.update_pages import page
from telemetry.actions import Compared, Decision, Update
from telemetry.findings import Incident
from tests.acting import Instance, asked
from tests.paging import Desk, paging
from tests.recovering import JOB, REAL, Cluster

LOSS = Compared("loss", 10, 0.5, 0.02)
SLOW = Compared("throughput", 10, 0.3, 0.1)
BROKEN = Compared("loss", 10, NOT_FINITE, 0.02)


class Told:
    """A Teller that keeps what it was told."""

    def __init__(self) -> None:
        self.taken: list[Incident] = []
        self.acked: list[str] = []
        self.saved = 0

    def take(self, incident: Incident, decision: Decision | None = None) -> None:
        self.taken.append(incident)

    def acknowledge(self, incident: str, by: str) -> int:
        self.acked.append(incident)
        return 1

    def changed(self, change_id: str, incident: str, summary: str, targets: Sequence[str]) -> None:
        pass

    def save(self) -> None:
        self.saved += 1

    def of_updates(self) -> list[tuple[str, str, bool]]:
        """Kind, severity, and whether it is over."""
        return [
            (one.kind, one.severity, one.closed_at is not None)
            for one in self.taken if one.verdict.rung == "update"
        ]  # fmt: skip


def ran(compared: list[Compared], *, dry_run: bool = False) -> tuple[Cluster, Instance, Told]:
    """An urgent update that ran and was compared."""
    site, told = Cluster(msgspec.structs.replace(REAL, dry_run=dry_run)), Told()
    site.teller, site.compared = told, lambda _update: compared
    start = site.start()
    start.ask(msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True))
    site.run_for(30.0)
    return site, start, told


def newest(site: Cluster) -> Update:
    return [one for one in site.records() if isinstance(one, Update)][-1]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        ([LOSS], [("loss_anomaly", "warning", False)]),
        ([SLOW], [("job_slow", "warning", False)]),
        ([BROKEN, SLOW], [("loss_anomaly", "critical", False)]),
        ([Compared("loss", 10, 0.0, 0.02)], []),
        ([], []),
    ],
)
def test_a_difference_is_told_once_by_its_severity(
    compared: list[Compared], expected: list[tuple[str, str, bool]]
) -> None:
    _, start, told = ran(compared)
    assert expected == told.of_updates()
    start.step(5)
    assert expected == told.of_updates()
    assert bool(expected) == bool(told.saved)


def test_it_says_what_differs_and_what_takes_it_back() -> None:
    site, _, told = ran([LOSS])
    (said,) = told.taken
    assert (newest(site).id, f"job:{JOB}", "page") == (said.id, said.scope, said.verdict.action)
    assert "loss by 0.5 (at most 0.02)" in said.verdict.reason
    assert f"nodewarden rollback {JOB}" in said.verdict.reason
    assert "code v2" in said.verdict.reason


def test_it_is_over_when_other_versions_are_asked_for() -> None:
    site, start, told = ran([LOSS])
    start.ask(msgspec.structs.replace(asked("update", JOB), versions={"code": "v3"}))
    start.step()
    assert [False, True] == [is_over for _, _, is_over in told.of_updates()]
    again = site.start()  # and another instance opens it no more
    again.step(3)
    assert told.of_updates()[-1][2]


def test_it_is_acknowledged_and_over_under_the_update_s_id() -> None:
    site, start, told = ran([LOSS])
    name = newest(site).id
    assert 404 == start.ask(asked("ack", "nothing")).status
    assert 404 == start.ask(asked("false_alarm", name)).status
    assert 200 == start.ask(asked("ack", name)).status
    assert [name] == told.acked
    start.step()
    assert [False, True] == [is_over for _, _, is_over in told.of_updates()]


def test_a_restart_that_did_not_come_about_is_told_unless_it_is_a_person_s_or_a_dry_run() -> None:
    site, told = Cluster(), Told()
    site.teller = told
    start = site.start()
    start.ask(asked("pause"))
    start.ask(msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True))
    one = msgspec.structs.replace(newest(site), state="failed", reason="expired", revision=1)
    start.commit([one])
    start.active._ledger.take(one)
    start.step()
    assert [("user_error", "warning", False)] == told.of_updates()

    _, _, dry = ran([LOSS], dry_run=True)
    assert [] == dry.of_updates()

    site, escalated = Cluster(), Told()
    site.teller, site.world.unsupported = escalated, {"in_place", "requeue"}
    start = site.start()
    start.ask(msgspec.structs.replace(asked("update", JOB), versions={"code": "v2"}, urgent=True))
    site.run_for(200.0)
    assert "failed" == newest(site).state
    assert [] == escalated.of_updates()
    assert ["escalated"] == [one.verdict.rung for one in escalated.taken]


def test_told_by_two_instances_it_is_one_page_that_is_resolved(tmp_path: Path) -> None:
    update = Update(
        id="u1", job="7", versions={"code": "v2"}, before={}, urgent=True, state="differs",
        asked_at=1.0, forced_at=1.0, at=2.0, by="otto", compared=[LOSS],
        reason="re-run steps differ: loss by 0.5; `nodewarden rollback 7` takes it back",
    )  # fmt: skip
    desk = Desk(tmp_path, paging())
    for _ in range(2):
        desk.tell(page(update))
        desk.run(100.0)
    assert 1 == len(desk.pagerduty.events)
    payload = desk.pagerduty.events[0]["payload"]
    assert "warning" == payload["severity"]
    assert "nodewarden rollback 7" in payload["summary"]
    desk.tell(page(update, desk.clock.time_s()))
    desk.run(1_000.0)
    assert {"resolved"} == set(desk.pagerduty.pages.values())
