"""`nodewarden simulate`: seeded, labelled telemetry: an archive, a capture, or onto live topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from evaluation.capture import jobs_json
from evaluation.faults import parse_fault
from evaluation.places import write_json
from evaluation.simulator import START_S, Simulation
from evaluation.writers import write_archive, write_capture
from nodewarden.clock import SystemClock
from nodewarden.logs import Log
from nodewarden.publishing import publish_logs
from nodewarden.serving import stop_on_signals
from nodewarden.session import Session, broker_option, config_option
from nodewarden.shards import history_target, live_target
from nodewarden.simulating import LEAD_S, publish_as_it_goes_by
from telemetry.errors import SettingsError
from telemetry.records import Arrived
from telemetry.settings import Configuration


@click.command("simulate")
@click.option("--nodes", type=click.IntRange(1, 20_000), required=True, metavar="N")
@click.option("--gpus", type=click.IntRange(1, 16), default=8, show_default=True, metavar="N")
@click.option("--minutes", type=float, default=60.0, show_default=True, metavar="M")
@click.option(
    "--fault", "faults", multiple=True, metavar="KIND@NODE+OFFSET",
    help="As ecn@n003+600 or xid79@2+10m; may be given often.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="S")
@click.option("--gpu-interval", type=float, default=15.0, show_default=True, metavar="SECONDS")
@click.option("--nic-interval", type=float, default=60.0, show_default=True, metavar="SECONDS")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write an archive.")
@click.option("--capture", type=click.Path(path_type=Path), metavar="DIR", help="Write a capture.")
@click.option("--kafka", is_flag=True, help="Publish to a history shard of the live topics.")
@click.option("--live", is_flag=True, help="With --kafka: as it goes by, into the live shard.")
@click.option(
    "--jobs",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Write who runs where to F, for `nodewarden inventory --from F`.",
)
@click.option("--shard", metavar="NAME", help="Which history shard; the first where not given.")
@click.option("--truth", type=click.Path(path_type=Path), metavar="F", help="Write the truth to F.")
@config_option
@broker_option
@click.pass_obj
def command(
    session: Session,
    nodes: int,
    gpus: int,
    minutes: float,
    faults: tuple[str, ...],
    seed: int,
    gpu_interval: float,
    nic_interval: float,
    out: Path | None,
    capture: Path | None,
    kafka: bool,
    live: bool,
    jobs: Path | None,
    shard: str | None,
    truth: Path | None,
    config: Path | None,
    broker: str | None,
) -> None:
    """Simulate a synchronous training job with faults and say what is wrong.

    What is wrong stands in truth.json of an archive and of a capture, and where --truth says.
    """
    if out is None and capture is None and not kafka:
        raise SettingsError(
            "nowhere to write: give --out DIR (archive), --capture DIR or --kafka (live topics)"
        )
    if live and not kafka:
        raise SettingsError("--live needs --kafka: only a log has a present")
    configuration = session.configured(config, broker)
    run = Simulation(
        nodes,
        gpus,
        minutes=minutes,
        seed=seed,
        faults=[parse_fault(text) for text in faults],
        gpu_interval_s=gpu_interval,
        nic_interval_s=nic_interval,
        start_s=float(round(time.time() + LEAD_S)) if live else START_S,
        settings=configuration.engine,
    )
    click.echo(f"seed {seed}")
    if out is not None:
        click.echo(f"{write_archive(run, out)} records in {out}")
    if capture is not None:
        write_capture(run, capture)
        click.echo(f"capture in {capture}")
    if truth is not None:
        write_json(truth, run.truth())
    if jobs is not None:
        write_json(jobs, jobs_json(run.cluster, run.start_s))
    if live:
        _live(run, configuration)
    elif kafka:
        # An import of the same name goes on where one of this name broke off.
        name = " ".join((f"simulation of {nodes} nodes, seed {seed}", *faults))
        _publish(run, name, configuration, shard)


def _live(run: Simulation, configuration: Configuration) -> None:
    """The run in real time, until it is over or SIGTERM. Raises PublishError."""
    from collectors.broker.publisher import KafkaPublisher  # noqa: PLC0415

    target, clock = live_target(configuration, "a cluster as it goes by needs one"), SystemClock()
    with stop_on_signals() as stop:
        publisher = KafkaPublisher(configuration.kafka, clock, "nodewarden-simulate")
        try:
            count = publish_as_it_goes_by(run, publisher, target, clock, stop.wait)
        finally:
            publisher.close()
    click.echo(f"{count} records published to shard {target.shard}")


def _publish(run: Simulation, name: str, configuration: Configuration, shard: str | None) -> None:
    """The run as one piece of history. Raises SourceUnavailable, PublishError."""
    # Kafka's library is only loaded where it is needed.
    from collectors.broker.publisher import KafkaPublisher  # noqa: PLC0415

    target = history_target(configuration, shard)
    log = Log(name=name, kind="history", records=_arrived(run))
    publisher = KafkaPublisher(configuration.kafka, SystemClock(), "nodewarden-simulate")
    try:
        done = publish_logs([log], publisher, target)
    finally:
        publisher.close()
    click.echo(f"{done.records} records published to shard {target.shard}")


def _arrived(run: Simulation) -> Iterator[Arrived]:
    for offset, (arrival_s, record) in enumerate(run.records()):
        yield Arrived(offset, arrival_s, record)
