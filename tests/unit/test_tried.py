"""A person tells what was tried: checked, audited, and told to the engine as a Control record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from actions.access import Person
from actions.controls import control_of, controls
from actions.ledger import Ledger
from actions.service import ActionService, Asked, observing
from nodewarden.cli import cli
from telemetry.actions import Lease, RailContext, Request
from telemetry.attempts import Attempt
from telemetry.settings import ActSettings

NOW = 1_700_000_000.0


def service() -> ActionService:
    ledger = Ledger()
    ledger.take(Lease(at=NOW - 10.0, instance="x", epoch=1))
    return ActionService(ledger, ActSettings(), observing, lambda _now_s: RailContext())


def ask(given: ActionService, attempt: Attempt | None) -> Request:
    asked = Asked(verb="tried", target="i1", person=Person("otto", "operator"), attempt=attempt)
    said, request = given.request(asked, NOW)
    for one in said:
        given.ledger.take(one)
    return request


def test_what_was_tried_is_audited_and_told_to_the_engine_once() -> None:
    given = service()
    request = ask(given, Attempt(step="checks", at=0.0, incident="", nodes=[]))

    record = control_of(request)
    assert ("attempted", "i1", "otto") == (record.action, record.target, record.by)
    assert Attempt(step="checks", at=NOW, incident="i1", told=True, nodes=[]) == record.attempt
    assert [record] == controls(given.ledger, NOW - 1.0)  # told again it is the same record


def test_without_a_step_it_is_refused_and_the_engine_hears_nothing() -> None:
    given = service()
    request = ask(given, None)

    assert (False, "no step is named", None) == (request.accepted, request.reason, request.control)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], {"nodes": None, "worked": None}),
        (["--nothing"], {"nodes": []}),
        (["--found", "n[1-2],n7", "--group", "pp 3"], {"nodes": ["n1", "n2", "n7"],
                                                      "group": "pp 3"}),
        (["--worked"], {"worked": True}),
        (["--failed"], {"worked": False}),
    ],
)  # fmt: skip
def test_the_command_says_it_in_the_services_words(
    options: list[str], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[Any] = []
    monkeypatch.setattr(
        "nodewarden.commands.tried.ask", lambda _s, _c, verb, body: posted.append((verb, body))
    )
    result = CliRunner().invoke(cli, ["tried", "i1", "--step", "checks", *options])

    assert 0 == result.exit_code, result.output
    ((verb, body),) = posted
    said = msgspec.convert(body["attempt"], Attempt)
    assert ("tried", "i1") == (verb, body["target"])
    assert wanted.items() <= msgspec.structs.asdict(said).items()


@pytest.mark.parametrize("options", [["--found", "n1", "--nothing"], ["--found", "n[1-"]])
def test_what_cannot_be_is_refused_in_one_line(options: list[str]) -> None:
    result = CliRunner().invoke(cli, ["tried", "i1", "--step", "checks", *options])

    assert 2 == result.exit_code
    assert "--found" in result.output
