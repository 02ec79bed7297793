"""`nodewarden status`: who reports, what is missing or blind, whether the worker keeps up."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from console.standing import ShardStanding, Standing, shown
from nodewarden.clock import SystemClock
from nodewarden.session import Session, broker_option, config_option
from nodewarden.standing import read_tail, read_worker, standing
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.settings import Configuration
from telemetry.topics import TELEMETRY, partition_of

FINE, NOT_WELL = 0, 1


@click.command("status")
@click.option(
    "--window", type=click.FloatRange(5.0, 3_600.0), default=60.0, show_default=True,
    metavar="SECONDS", help="Who sent nothing for so long is silent.",
)  # fmt: skip
@click.option(
    "--worker", "workers", multiple=True, metavar="HOST:PORT",
    help="Where a worker serves its metrics; may be given often; else stream.metrics_address.",
)  # fmt: skip
@click.option("--nodes", type=click.IntRange(0, 20_000), default=20, show_default=True,
              metavar="N", help="So many nodes are shown, the worst.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@config_option
@broker_option
@click.pass_obj
def command(
    session: Session, window: float, workers: tuple[str, ...], nodes: int, as_json: bool,
    config: Path | None, broker: str | None,
) -> int:  # fmt: skip
    """Say who reports, which sources are missing or blind, and how far the worker is behind.

    Exit status: 0 all is well, 1 something is not, 2 usage or settings, 3 no broker answers.
    """
    configuration = session.configured(config, broker)
    found = look(configuration, window, workers)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        Console().print(shown(found, nodes))
    return NOT_WELL if found.problems else FINE


def look(configuration: Configuration, window_s: float, workers: tuple[str, ...]) -> Standing:
    """Raises SettingsError, SourceUnavailable where no broker answers."""
    from collectors.broker.consumer import KafkaLogReader  # noqa: PLC0415 - only where needed
    from collectors.central.hosts import read_inventory  # noqa: PLC0415

    shard = configuration.engine.shard
    partition = partition_of(shard, configuration.shards)
    if partition is None:
        raise SettingsError(f"engine.shard: {shard!r} is none of shards {configuration.shards}")
    clock = SystemClock()
    reader = KafkaLogReader(configuration.kafka, clock, "nodewarden-status")
    try:
        tail = read_tail(reader, (TELEMETRY, partition), window_s, clock)
        now_s = clock.time_s()
        inventory = read_inventory(reader)
    finally:
        reader.close()
    shards: list[ShardStanding] = []
    problems: list[str] = []
    for address in workers or (configuration.stream.metrics_address,):
        try:
            shards += read_worker(address, clock) if address else []
        except SourceUnavailable as error:
            problems.append(str(error))
    return standing(tail, inventory, shards, problems, configuration, now_s, window_s)
