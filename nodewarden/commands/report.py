"""`nodewarden report`: productive time, failures, recoveries and decisions of a stretch of time."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from actions.accounting.account import Accountant
from console.account_csv import csv_files
from console.account_report import render_account
from console.account_terminal import print_account
from nodewarden.accounting import account_of_log, account_of_path
from nodewarden.clock import SystemClock
from nodewarden.commands.replay import json_text
from nodewarden.files import write_text
from nodewarden.session import Session, broker_option, config_option
from telemetry.accounts import Account
from telemetry.errors import InputError
from telemetry.settings import Configuration

_MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])")


@click.command("report")
@click.argument("path", required=False, type=click.Path(path_type=Path), metavar="[PATH]")
@config_option
@broker_option
@click.option("--month", metavar="YYYY-MM", help="Only this month (UTC).")
@click.option("--job", default="", metavar="ID", help="Only this job.")
@click.option("--html", type=click.Path(path_type=Path), metavar="F.html", help="Write a page.")
@click.option(
    "--csv", "csv_dir", type=click.Path(path_type=Path), metavar="DIR", help="Write CSV files."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--tz", metavar="Z", help="Time zone of log lines that name none, as Europe/Berlin.")
@click.pass_obj
def command(
    session: Session,
    path: Path | None,
    config: Path | None,
    broker: str | None,
    month: str | None,
    job: str,
    html: Path | None,
    csv_dir: Path | None,
    as_json: bool,
    tz: str | None,
) -> None:
    """Account for the time of jobs: ETTR, MTBF, times to recover, decisions, nodes that come back.

    PATH is an archive, or what `replay` reads; without it the live topics are read. Definitions
    are in docs/accounting.md.
    """
    configuration = session.configured(config, broker)
    accountant = Accountant(None if month is None else month_of(month), job)
    if path is None:
        read, account = "the live topics", _live(configuration, accountant)
    else:
        read, account = str(path), account_of_path(path, configuration, accountant, tz)
    cluster = configuration.engine.cluster
    if html is not None:
        write_text(html, render_account(account, cluster, read))
    if csv_dir is not None:
        for name, text in csv_files(account).items():
            write_text(csv_dir / name, text)
    if as_json:
        sys.stdout.write(json_text(msgspec.to_builtins(account)))
        return
    print_account(account, cluster, read, Console())
    for written in (html, csv_dir):
        if written is not None:
            click.echo(f"report written to {written}")


def month_of(text: str) -> tuple[float, float]:
    """The month's begin and the next one's, Unix seconds UTC. Raises InputError."""
    found = _MONTH.fullmatch(text)
    if found is None:
        raise InputError(f"--month {text!r}: no month; write it as 2026-11")
    year, month = int(found[1]), int(found[2])
    after = (year + 1, 1) if month == 12 else (year, month + 1)
    begin, end = (datetime(*one, 1, tzinfo=UTC).timestamp() for one in ((year, month), after))
    return begin, end


def _live(configuration: Configuration, accountant: Accountant) -> Account:
    """What the live topics hold. Raises SourceUnavailable, SettingsError."""
    from collectors.broker.consumer import KafkaLogReader  # noqa: PLC0415 - only where needed

    reader = KafkaLogReader(configuration.kafka, SystemClock(), "nodewarden-report", committed=True)
    try:
        return account_of_log(reader, configuration, accountant)
    finally:
        reader.close()
