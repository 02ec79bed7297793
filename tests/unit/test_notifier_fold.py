"""Whatever happens to the log, to PagerDuty and to us: what is promised of pages holds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actions.notify.calls import Answer, NoAnswer
from actions.notify.text import dedup_key
from tests.paging import Desk, incident, paging

NODES = 6
STEPS = st.one_of(
    st.tuples(st.just("open"), st.integers(0, NODES - 1), st.sampled_from(["critical", "warning"])),
    st.tuples(st.just("close"), st.integers(0, NODES - 1), st.none()),
    st.tuples(st.just("wait"), st.integers(1, 400), st.none()),
    st.tuples(st.just("kill"), st.none(), st.none()),
    st.tuples(st.just("ack"), st.integers(0, NODES - 1), st.none()),
    st.tuples(st.just("down"), st.booleans(), st.none()),
    st.tuples(st.just("answer"), st.none(), st.sampled_from([429, 500, 401, "timeout"])),
)


class Play:
    """A site: incidents that open and close on some nodes."""

    def __init__(self, directory: Path) -> None:
        self.settings = paging(storm_pages=3)
        self.desk = Desk(directory, self.settings)
        self.open: dict[int, Any] = {}
        self.count = 0
        self.waited: set[int] = set()  # critical, and open for longer than the group's wait

    def step(self, what: str, number: Any, word: Any) -> None:
        desk = self.desk
        if what == "open" and number not in self.open:
            self.count += 1
            one = incident(
                self.count, node=f"n-{number}", severity=word, at=desk.clock.time_s()
            )  # fmt: skip
            self.open[number] = one
            desk.tell(one)
        elif what == "close" and number in self.open:
            one = self.open.pop(number)
            desk.tell(msgspec.structs.replace(one, rev=2, closed_at=desk.clock.time_s()))
        elif what == "wait":
            desk.run(float(number))
            if number > 10:
                self.waited |= {n for n, one in self.open.items() if one.severity == "critical"}
        elif what == "kill":
            desk.restart(self.settings)
        elif what == "ack" and number in self.open:
            desk.notifier.acknowledge(self.open[number].id, "ada")
        elif what == "down":
            desk.pagerduty.down = bool(number)
        elif what == "answer":
            answer = NoAnswer("timeout") if word == "timeout" else Answer(word)
            desk.pagerduty.answers.append(answer)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(STEPS, max_size=40))
def test_every_critical_is_told_and_every_page_is_resolved_in_the_end(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        play = Play(Path(directory))
        for step in steps:
            play.step(*step)
        play.step("down", False, None)
        for number in list(play.open):
            play.step("close", number, None)
        play.desk.run(2_500.0)
        pagerduty = play.desk.pagerduty
        assert [] == pagerduty.still_open()
        assert 0 == play.desk.notifier.open_pages()
        told = {key for action, key in pagerduty.log if action == "trigger"}
        for number in play.waited:
            scope = f"node:n-{number}"
            key = dedup_key({"cluster": "main", "scope": scope, "kind": "gpu_lost"})
            assert key in told
        assert pagerduty.statuses.keys() <= {202}
        play.desk.store.close()
