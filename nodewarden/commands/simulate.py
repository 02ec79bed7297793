"""`nodewarden simulate`: seeded, labelled telemetry, as an archive or as a capture."""

from __future__ import annotations

from pathlib import Path

import click

from evaluation.faults import parse_fault
from evaluation.simulator import Simulation
from evaluation.writers import write_archive, write_capture
from nodewarden.session import Session, config_option
from telemetry.errors import SettingsError


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
@config_option
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
    config: Path | None,
) -> None:
    """Simulate a synchronous training job with faults and say what is wrong in truth.json."""
    if out is None and capture is None:
        raise SettingsError("nowhere to write: give --out DIR (archive) or --capture DIR")
    run = Simulation(
        nodes,
        gpus,
        minutes=minutes,
        seed=seed,
        faults=[parse_fault(text) for text in faults],
        gpu_interval_s=gpu_interval,
        nic_interval_s=nic_interval,
        settings=session.settings(config).configuration.engine,
    )
    click.echo(f"seed {seed}")
    if out is not None:
        click.echo(f"{write_archive(run, out)} records in {out}")
    if capture is not None:
        write_capture(run, capture)
        click.echo(f"capture in {capture}")
