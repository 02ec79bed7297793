"""`nodewarden replay`: archives and captures through the same engine and policy, actions off."""

from __future__ import annotations

import math
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from console.report import render
from console.terminal import print_report
from evaluation.scoring import Score, load_truth, score
from nodewarden.files import write_text
from nodewarden.logs import open_logs
from nodewarden.progress import bar
from nodewarden.replaying import Replayed, json_object, replay
from nodewarden.reporting import report_of
from nodewarden.session import Session, config_option
from telemetry.errors import InputError
from telemetry.findings import Kind

KINDS: tuple[str, ...] = ("any", *Kind.__args__)  # type: ignore[attr-defined]
TIME_HELP = "Unix seconds or ISO 8601; without a zone it is UTC."


@click.command("replay")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--report", type=click.Path(path_type=Path), metavar="F.html", help="Write a report.")
@click.option("--from", "from_text", metavar="T", help=f"Start there. {TIME_HELP}")
@click.option("--to", "to_text", metavar="T", help=f"Stop there. {TIME_HELP}")
@click.option("--score", "truth", type=click.Path(path_type=Path), metavar="TRUTH.json")
@click.option("--fail-on", type=click.Choice(KINDS), metavar="KIND", help="Exit 1 if one is found.")
@click.option("--tz", metavar="Z", help="Time zone of log lines that name none, as Europe/Berlin.")
@click.option("--timing", is_flag=True, help="Add wall_s to the JSON summary.")
@click.pass_obj
def command(
    session: Session,
    paths: tuple[Path, ...],
    config: Path | None,
    as_json: bool,
    report: Path | None,
    from_text: str | None,
    to_text: str | None,
    truth: Path | None,
    fail_on: str | None,
    tz: str | None,
    timing: bool,
) -> int:
    """Replay captures and archives: the same findings and verdicts as live, and no way to act."""
    began = time.monotonic()
    configuration = session.settings(config).configuration
    from_s, to_s = parse_time(from_text, "--from"), parse_time(to_text, "--to")
    with bar() as progress:
        logs = [log for path in paths for log in open_logs(path, configuration, tz, progress.read)]
        found = replay(logs, from_s, to_s, progress.folded)
    scored = None if truth is None else _score(found, truth)
    if report is not None:
        page = report_of(found, "Incident report", _read(paths), scored)
        write_text(report, render(page))
    if as_json:
        said = json_object(found, scored)
        if timing:
            said["summary"]["wall_s"] = round(time.monotonic() - began, 3)
        sys.stdout.write(json_text(said))
    else:
        print_report(report_of(found, "Incidents", _read(paths), scored), Console())
        if report is not None:
            click.echo(f"report written to {report}")
    return 1 if fail_on is not None and _has(found, fail_on) else 0


def json_text(said: dict[str, Any]) -> str:
    """The JSON object as it is printed: indented, keys in their own order, ASCII-safe."""
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode() + "\n"


def parse_time(text: str | None, option: str) -> float | None:
    """Unix seconds of a time on the command line. Raises InputError."""
    if text is None:
        return None
    try:
        at_s = float(text)
    except ValueError:
        pass
    else:
        if not math.isfinite(at_s):
            raise InputError(f"{option} {text!r}: no time; {TIME_HELP}")
        return at_s
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{option} {text!r}: no time; {TIME_HELP}") from error
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _score(found: Replayed, truth: Path) -> Score:
    known = sorted({node for fold in found.folds for node in fold.inventory.known()})
    return score(found.incidents, load_truth(truth, known), found.end_s)


def _read(paths: tuple[Path, ...]) -> str:
    return ", ".join(str(path) for path in paths)


def _has(found: Replayed, kind: str) -> bool:
    return any(kind in ("any", incident.kind) for incident in found.incidents)
