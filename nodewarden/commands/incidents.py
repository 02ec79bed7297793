"""`nodewarden incidents`: what the live engine said, as `replay` prints it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from console.account_terminal import print_plain
from console.summary import Table
from console.text import visible
from nodewarden.clock import SystemClock
from nodewarden.commands.replay import json_text
from nodewarden.replaying import incident_object
from nodewarden.session import Session, broker_option, config_option
from streams.replay import Outcome
from telemetry.errors import SettingsError
from telemetry.findings import Incident
from telemetry.log_reading import read_to_end
from telemetry.ports import LogReader
from telemetry.settings import Configuration
from telemetry.topics import INCIDENTS, partition_of

HEAD = ("id", "opened", "state", "kind", "job", "suspects", "verdict")


@click.command("incidents")
@config_option
@broker_option
@click.option("--shard", metavar="NAME", help="Only those of this shard.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_obj
def command(
    session: Session, config: Path | None, broker: str | None, shard: str | None, as_json: bool
) -> None:
    """List the incidents that the live engine told, each in its newest revision."""
    from collectors.broker.consumer import KafkaLogReader  # noqa: PLC0415 - only where needed

    configuration = session.configured(config, broker)
    partition = _partition(configuration, shard)
    reader = KafkaLogReader(configuration.kafka, SystemClock(), "nodewarden-incidents")
    try:
        outcome = told(reader, partition)
    finally:
        reader.close()
    incidents = outcome.sorted_incidents()
    if as_json:
        found = [incident_object(incident) for incident in incidents]
        sys.stdout.write(json_text({"incidents": found}))
    else:
        print_incidents(incidents, Console())


def told(reader: LogReader, partition: int | None) -> Outcome:
    """The incidents of the topic, or of one of its partitions, as they stand now.

    Raises SourceUnavailable.
    """
    if not reader.partitions(INCIDENTS):
        raise SettingsError(f"no topic {INCIDENTS}; make it: nodewarden topics create")
    outcome = Outcome()
    for line in read_to_end(reader, INCIDENTS, partition):
        incident = _incident(line.value)
        known = None if incident is None else outcome.incidents.get(incident.id)
        if incident is not None and (known is None or incident.rev >= known.rev):
            outcome.incidents[incident.id] = incident
    return outcome


def _incident(value: bytes | None) -> Incident | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=Incident)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return None  # of another version, or somebody else's


def _partition(configuration: Configuration, shard: str | None) -> int | None:
    if shard is None:
        return None
    partition = partition_of(shard, configuration.shards)
    if partition is None:
        raise SettingsError(f"--shard {shard}: not among shards {list(configuration.shards)}")
    return partition


def print_incidents(incidents: list[Incident], console: Console) -> None:
    """One line each."""
    if not incidents:
        console.print("no incidents", highlight=False)
        return
    print_plain(Table("Incidents", HEAD, tuple(map(_row, incidents))), console)


def _row(incident: Incident) -> tuple[str, ...]:
    suspects = dict.fromkeys(s.node for s in incident.suspects if s.node)
    verdict = incident.verdict
    fields = (
        incident.id,
        datetime.fromtimestamp(incident.opened_at, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "open" if incident.closed_at is None else "closed",
        incident.kind, incident.job, ", ".join(suspects),
        f"{verdict.action} {', '.join(verdict.targets)}".strip(),
    )  # fmt: skip
    return tuple(visible(field) for field in fields)
