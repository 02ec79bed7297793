"""`nodewarden show`: an incident with all that was decided, asked and done about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from nodewarden.act_client import ActClient
from nodewarden.commands.replay import json_text
from nodewarden.session import Session, config_option


@click.command("show")
@click.argument("name", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@config_option
@click.pass_obj
def command(session: Session, name: str, as_json: bool, config: Path | None) -> None:
    """Show the incident ID, or the one that the decision ID is of, and its audit."""
    found = ActClient(session.settings(config).configuration.act).show(name)
    if as_json:
        sys.stdout.write(json_text(found))
    else:
        click.echo("\n".join(_printable(line) for line in _lines(found)))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    incident = found.get("incident")
    if incident is not None:
        state = (
            "open" if incident["closed_at"] is None else f"closed {_time(incident['closed_at'])}"
        )
        yield f"{incident['id']}  {incident['kind']}  {incident['severity']}  {state}"
        yield f"  opened    {_time(incident['opened_at'])}  job {incident['job'] or '-'}"
        suspects = [f"{one['node']} {one['entity']}".strip() for one in incident["suspects"]]
        yield f"  suspects  {', '.join(suspects) or '-'}"
        for line in incident["evidence"]:
            yield f"  evidence  {line['text']}"
        if found.get("acked_by"):
            yield f"  looked after by {found['acked_by']}"
        if found.get("snoozed_until"):
            yield f"  snoozed until {_time(found['snoozed_until'])}"
    for one in sorted(_events(found), key=lambda event: event[0]):
        yield f"{_time(one[0])}  {one[1]}"


def _events(found: dict[str, Any]) -> Iterator[tuple[float, str]]:
    for one in found.get("decisions", ()):
        verdict = one["verdict"]
        wants = " ".join([verdict["action"], *verdict["targets"]])
        yield (
            one["at"],
            f"decision {one['id']} [{wants}] {one['state']} by {one['by']}: {one['reason']}",
        )
        yield one["at"], f"  because {verdict['reason']}"
        for rail in one["rails"]:
            said = "passes" if rail["passed"] else "REFUSES"
            yield one["at"], f"  rail {rail['name']} {said}: {rail['reason']}"
    for one in found.get("commands", ()):
        dry = " (dry run)" if one["dry_run"] else ""
        does = " ".join(filter(None, [one["step"] or one["action"], one["mode"], *one["targets"]]))
        yield one["intent_at"], f"command {one['id']} [{does}]{dry}"
    for one in found.get("outcomes", ()):
        yield one["at"], f"outcome {one['command']} {one['status']}: {one['reason']}"
    for one in found.get("recoveries", ()):
        for passed in one["history"]:
            yield passed["since"], f"job {one['job']} {passed['state']}: {passed['reason']}"
        yield one["since"], f"job {one['job']} {one['state'].upper()}: {one['reason']}"
    for one in found.get("requests", ()):
        taken = "taken" if one["accepted"] else f"refused: {one['reason']}"
        note = f" ({one['note']})" if one["note"] else ""
        yield one["at"], f"{one['verb']} {one['target']} by {one['by'] or 'nobody'} {taken}{note}"


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
