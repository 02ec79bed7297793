"""`nodewarden replay`: archives and captures through the same engine and policy, actions off."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from console.report import render
from console.terminal import print_report
from console.what_if import print_what_if
from evaluation.scoring import Score, load_truth, score
from nodewarden.files import write_text
from nodewarden.logs import Log, open_logs
from nodewarden.progress import Bar, bar
from nodewarden.replaying import Replayed, json_object, replay
from nodewarden.reporting import report_of
from nodewarden.session import Session, config_option
from nodewarden.what_if import (
    AS_RECORDED,
    compared,
    note_of_settings,
    replay_both,
    what_if_object,
)
from telemetry.errors import InputError
from telemetry.findings import Incident, Kind
from telemetry.settings import Configuration

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
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="G.toml",
    help="What if: print what these settings would have said otherwise than those of --config, or "
    "than those that the log recorded. --fail-on then asks for an incident that differs.",
)  # fmt: skip
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
    against: Path | None,
    timing: bool,
) -> int:
    """Replay captures and archives: the same findings and verdicts as live, and no way to act."""
    asked = Asked(
        paths, session.settings(config).configuration, as_json,
        parse_time(from_text, "--from"), parse_time(to_text, "--to"), tz, truth, fail_on,
        session.settings_path(config),
    )  # fmt: skip
    if against is None:
        return _replay(asked, report, timing)
    if report is not None or timing:
        raise click.UsageError("--against prints one table: neither --report nor --timing")
    return _what_if(asked, session, against)


@dataclass(frozen=True, slots=True)
class Asked:
    """What both forms of the command take; `named` is the settings file where there is one."""

    paths: tuple[Path, ...]
    configuration: Configuration
    as_json: bool
    from_s: float | None
    to_s: float | None
    tz: str | None
    truth: Path | None
    fail_on: str | None
    named: Path | None

    @property
    def read(self) -> str:
        """What is read, for people."""
        return ", ".join(str(path) for path in self.paths)

    def logs(self, progress: Bar) -> list[Log]:
        """What is read. Raises InputError."""
        return [
            log
            for path in self.paths
            for log in open_logs(path, self.configuration, self.tz, progress.read)
        ]

    def score(self, found: Replayed) -> Score | None:
        """None where no truth was given. Raises InputError."""
        if self.truth is None:
            return None
        known = sorted({node for fold in found.folds for node in fold.inventory.known()})
        return score(found.incidents, load_truth(self.truth, known), found.end_s)

    def fails(self, found: Iterable[Incident]) -> bool:
        """Whether one of these is what `--fail-on` asks for."""
        return self.fail_on is not None and any(
            self.fail_on in ("any", incident.kind) for incident in found
        )


def _replay(asked: Asked, report: Path | None, timing: bool) -> int:
    began = time.monotonic()
    with bar() as progress:
        found = replay(asked.logs(progress), asked.from_s, asked.to_s, progress.folded)
    if asked.named is not None:
        found.notes += note_of_settings(found, str(asked.named), asked.configuration.engine)
    scored = asked.score(found)
    if report is not None:
        write_text(report, render(report_of(found, "Incident report", asked.read, scored)))
    if asked.as_json:
        said = json_object(found, scored)
        if timing:
            said["summary"]["wall_s"] = round(time.monotonic() - began, 3)
        sys.stdout.write(json_text(said))
    else:
        print_report(report_of(found, "Incidents", asked.read, scored), Console())
        if report is not None:
            click.echo(f"report written to {report}")
    return 1 if asked.fails(found.incidents) else 0


def _what_if(asked: Asked, session: Session, against: Path) -> int:
    first = None if asked.named is None else asked.configuration.engine
    second = session.settings(against).configuration.engine
    with bar() as progress:
        both = replay_both(
            asked.logs(progress), first, second, asked.from_s, asked.to_s, progress.folded
        )
    scores = [scored for side in both if (scored := asked.score(side)) is not None]
    unnamed = f"{AS_RECORDED}, of a capture the defaults"
    origins = (unnamed if asked.named is None else str(asked.named), str(against))
    found = compared(both, asked.read, origins, scores)
    if asked.as_json:
        sys.stdout.write(json_text(what_if_object(found, both)))
    else:
        print_what_if(found, Console())
    return 1 if asked.fails(one.incident for one in found.differences) else 0


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
