"""`nodewarden incidents` on a terminal and on a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nodewarden.commands.incidents import print_incidents
from telemetry.findings import Incident
from tests.acting import incident

ID = "b9936ba4efd7da48"


def printed(found: list[Incident], *, terminal: bool, columns: int = 80) -> str:
    to = io.StringIO()
    print_incidents(found, Console(file=to, force_terminal=terminal, width=columns))
    return to.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_an_incident_is_one_line_however_narrow_it_is(terminal: bool) -> None:
    lines = printed([incident(ID), incident("b")], terminal=terminal, columns=40).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:2] == ["id", "opened"]
    assert lines[1].split()[0] == ID


def test_what_looks_like_markup_or_hides_is_shown_as_it_is() -> None:
    said = printed([incident(ID, job="[red]j\x1b[2J")], terminal=False)
    assert "[red]j\\x1b[2J" in said


def test_no_incidents_are_said() -> None:
    assert printed([], terminal=False) == "no incidents\n"
