"""The report on a terminal: the same facts, and names that do nothing."""

from __future__ import annotations

import re
from io import StringIO
from typing import Literal

from rich.console import Console

from console.model import IncidentView, KernelLine, Report
from console.story import story
from console.terminal import CARDS_MAX, LINES_MAX, print_report
from telemetry.findings import Suspect
from tests.unit.report_demo import evidence, incident, report, verdict

HOSTILE = "[bold red]x[/] [link=http://e.vil]y[/link]\x1b]0;title\x07\x1b[2J\u202e[/nothing]"


def printed(shown: Report, *, terminal: bool, width: int = 100) -> str:
    out = StringIO()
    colors: Literal["standard"] | None = "standard" if terminal else None
    console = Console(file=out, force_terminal=terminal, width=width, color_system=colors)
    print_report(shown, console)
    return out.getvalue()


def hostile() -> Report:
    bad = incident(
        scope=f"node:{HOSTILE}", job=HOSTILE, suspects=[Suspect(HOSTILE, HOSTILE, 1.0)],
        evidence=[type(evidence()[0])(
            HOSTILE, HOSTILE, 1.0, None, HOSTILE, 0.0, HOSTILE, HOSTILE, HOSTILE)],
        verdict=verdict(reason=HOSTILE, targets=[HOSTILE]),
        verdicts=[verdict(reason=HOSTILE + "2")],
    )  # fmt: skip
    view = IncidentView(bad, kernel_lines=[KernelLine(None, HOSTILE, HOSTILE)])
    return Report(
        HOSTILE, HOSTILE, HOSTILE, None, [view], [], {HOSTILE: HOSTILE}, [HOSTILE],
        {HOSTILE: HOSTILE},
    )  # fmt: skip


def test_names_inject_neither_markup_nor_control_sequences_on_a_pipe() -> None:
    text = printed(hostile(), terminal=False)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert r"[bold red]x[/] [link=http://e.vil]y[/link]\x1b]0;title\x07\x1b[2J" in text


def test_names_inject_neither_markup_nor_control_sequences_on_a_terminal() -> None:
    text = printed(hostile(), terminal=True)
    without_styles = re.sub("\x1b\\[[0-9;]*m", "", text)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", without_styles)
    assert "[bold red]x[/]" in without_styles


def test_each_incident_has_its_story_verdict_and_evidence_on_one_line_each_on_a_pipe() -> None:
    lines = printed(report(), terminal=False).splitlines()

    assert all(story(view.incident) in lines for view in report().incidents)
    assert any(line.startswith("Verdict: Isolate gpu-a042 and restart job") for line in lines)
    assert any("18,234.5 / 212 packets/s" in line for line in lines)
    assert "╭" not in "".join(lines)


def test_a_terminal_gets_panels_no_wider_than_it_is() -> None:
    text = re.sub("\x1b\\[[0-9;]*m", "", printed(report(), terminal=True))

    assert text.count("╭") == 3
    assert max(len(line) for line in text.splitlines() if line[:1] in "╭│╰") == 100


def test_a_narrow_terminal_gets_the_evidence_in_words_that_are_not_torn() -> None:
    narrow, wide = (printed(report(), terminal=True, width=width) for width in (60, 160))
    assert "observed / expected" in wide
    assert "expected" not in narrow
    words = {word for item in evidence() for word in item.text.split() if len(word) < 40}
    assert all(word in narrow for word in words)


def test_no_incident_is_said_plainly() -> None:
    text = printed(Report("t", "c", "x", None), terminal=False)

    assert "No incident" in text
    assert "What was watched is not known" in text


def test_what_the_verdicts_lack_stands_beside_the_count_of_incidents() -> None:
    lines = printed(
        Report("t", "c", "x", None, [], summary={"records": 5, "rejected": 1}), terminal=False
    ).splitlines()
    assert lines[2].startswith("No incident: ")
    assert lines[3] == "read with care: rejected 1"
    whole = printed(Report("t", "c", "x", None, [], summary={"rejected": 0}), terminal=False)
    assert "with care" not in whole


def test_many_incidents_stay_bounded() -> None:
    views = [IncidentView(incident(id=str(k))) for k in range(CARDS_MAX + LINES_MAX + 5)]
    text = printed(Report("t", "c", "x", None, views), terminal=False)

    assert text.count("Verdict: ") == CARDS_MAX
    assert "5 more incidents not shown here" in text


def test_blind_nodes_losses_notes_and_score_are_shown() -> None:
    text = printed(report(), terminal=False)

    assert "! reporting 63 of 64; ! blind gpu-b011" in text
    assert "! rejected 2" in text
    assert "note: jobs.json gives no pipeline stages" in text
    assert "kind nic_congested; nodes gpu-a017; found yes; delay 11 min" in text


def test_the_score_dates_a_fault_as_people_do() -> None:
    score = {"delay": 92.66, "outcomes": [{"kind": "gpu_lost", "onset": 1_790_000_000.0}]}
    text = printed(Report("t", "c", "x", None, [], score=score), terminal=False)
    assert "kind gpu_lost; onset 2026-09-21 14:13:20 UTC" in text
    assert "delay 1 min 33 s" in text
