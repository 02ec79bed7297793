"""Which incidents of two replays are the same, and how the table shows what differs."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from console.what_if import (
    ROWS_MAX,
    SETTINGS_MAX,
    Difference,
    SettingDifference,
    WhatIf,
    print_what_if,
)
from nodewarden.what_if import differences, paired, under
from telemetry.findings import Evidence, Incident, Suspect, Verdict
from telemetry.records import Settings
from telemetry.settings import EngineSettings, TickSettings, settings_digest

START = 1_700_000_000.0


def line(onset: float) -> Evidence:
    return Evidence("zscore", "gpu_temperature_celsius", 90.0, 60.0, "C", onset, "warm", "n1")


def incident(name: str, node: str = "n1", at: float = START, **more: Any) -> Incident:
    said = Verdict("isolate", f"{node} is warm.", [node], "now", at + 60.0)
    one = Incident(
        id=name, rev=0, scope=f"node:{node}", opened_at=at, closed_at=at + 300.0, job="j1",
        cause="hardware", kind="gpu_thermal", severity="warning", confidence=0.6,
        suspects=[Suspect(node, "", 0.6)], evidence=[line(at - 60.0)], verdict=said,
        verdicts=[said],
    )  # fmt: skip
    return msgspec.structs.replace(one, **more)


def test_another_onset_makes_another_id_and_the_same_incident() -> None:
    first, second = incident("a"), incident("b", at=START + 120.0)

    ((one,), same) = differences([first], [second])

    assert (0, "verdict", 120.0) == (same, one.change, one.delay_s)
    assert ("at",) == one.fields


def test_another_kind_another_node_another_time_are_other_incidents() -> None:
    others = [
        incident("b", kind="gpu_power"),
        incident("c", node="n2"),
        incident("d", at=START + 5_000.0),
        incident("e", job="j2"),
    ]

    changed, same = differences([incident("a")], others)

    assert 0 == same
    assert ["only first", *4 * ["only second"]] == sorted(one.change for one in changed)
    times = [one.incident.opened_at for one in changed]
    assert sorted(times) == times


def test_of_several_the_next_in_time_is_taken_and_each_once() -> None:
    first = [incident("a"), incident("b", at=START + 200.0)]
    second = [incident("c", at=START + 190.0), incident("d", at=START + 10.0)]

    assert {("a", "d"), ("b", "c")} == {
        (one.id, other.id) for one, other in paired(first, second) if one and other
    }


def test_later_verdicts_that_differ_are_a_difference() -> None:
    one = incident("a")
    later = Verdict("page", "still warm", [], "now", START + 900.0)
    other = msgspec.structs.replace(one, verdicts=[*one.verdicts, later])

    ((found,), same) = differences([one], [other])

    assert (0, ("later verdicts",), 0.0) == (same, found.fields, found.delay_s)


names = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["n1", "n2"]), st.integers(0, 5)),
    unique_by=lambda row: row[0], max_size=6,
)  # fmt: skip


@given(first=names, second=names)
def test_each_incident_of_both_is_in_exactly_one_pair(
    first: list[tuple[str, str, int]], second: list[tuple[str, str, int]]
) -> None:
    left = [incident(name, node, START + 100.0 * at) for name, node, at in first]
    right = [incident(name, node, START + 100.0 * at) for name, node, at in second]

    found = list(paired(left, right))

    assert sorted(one.id for one in left) == sorted(one.id for one, _ in found if one)
    assert sorted(one.id for one in right) == sorted(other.id for _, other in found if other)
    same_ids = {one.id for one in left} & {one.id for one in right}
    assert same_ids <= {one.id for one, other in found if one and other and one.id == other.id}


def test_other_rules_leave_whose_past_it_is_and_how_it_was_measured() -> None:
    recorded = EngineSettings(
        cluster="c9", shard="s2", ticks=TickSettings(interval_s={"gpu": 15.0}, nodes_max=7)
    )
    record = Settings(
        at=1.0, node="", source="x", started_at=0.0, seq=0, digest="old", engine_version="1",
        settings=recorded,
    )  # fmt: skip

    found = under(record, EngineSettings()).settings

    assert ("c9", "s2") == (found.cluster, found.shard)
    assert {"gpu": 15.0} == found.ticks.interval_s
    assert TickSettings().nodes_max == found.ticks.nodes_max
    assert settings_digest(found) == under(record, EngineSettings()).digest


def shown(found: WhatIf, width: int | None) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=width is not None, width=width or 80, no_color=True)
    print_what_if(found, console)
    return out.getvalue()


def test_hostile_names_do_nothing_on_a_terminal_or_a_pipe() -> None:
    hostile = incident("a", node="n1\x1b[2J[bold]")
    found = WhatIf(
        "x\x1b[2J", "[red]a", "b", [SettingDifference("engine.k", '"\x1b"', "1")],
        [Difference("only first", hostile, None)], 3, ["\x1b]0;evil"],
    )  # fmt: skip

    for width in (None, 120):
        text = shown(found, width)
        assert "\x1b[2J" not in text
        assert "\x1b]0" not in text
        assert "[red]a" in text
        assert "lost: only" in text
        assert "3 incidents told alike" in text


def test_many_rows_are_cut_and_said() -> None:
    many = [Difference("only second", None, incident(f"i{n}")) for n in range(ROWS_MAX + 3)]
    keys = [SettingDifference(f"engine.k{n}", "1", "2") for n in range(SETTINGS_MAX + 2)]

    text = shown(WhatIf("x", "a", "b", keys, many, 0), None)

    assert "3 more differences not shown here" in text
    assert "2 more settings differ" in text
    assert f"0 lost, {ROWS_MAX + 3} new, 0 with another verdict; 0 incidents told alike" in text
