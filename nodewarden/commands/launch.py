"""`nodewarden launch -- CMD`: the training of one Slurm job, restartable in its allocation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click
import msgspec

from collectors.launcher.launcher import Launcher
from collectors.launcher.parts import LaunchOptions
from collectors.launcher.steps import SlurmSteps
from nodewarden.clock import SystemClock
from nodewarden.session import Session
from telemetry.errors import InputError, SettingsError
from telemetry.hostlist import expand
from telemetry.launch_files import job_directory
from telemetry.launching import VERSION_PATTERN, VersionKind, Versions

DIR_VARIABLE = "NODEWARDEN_LAUNCH_DIR"


@click.command(
    "launch", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--dir", "root", type=click.Path(path_type=Path), metavar="D",
              help=f"Of orders and status; act sees it too; else ${DIR_VARIABLE}.")  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1), help="So many work, the rest are spares; else all."
)
@click.option("--tasks-per-node", "tasks", type=click.IntRange(1, 1_024), default=1,
              show_default=True, help="Ranks of each node.")  # fmt: skip
@click.option("--partial", is_flag=True, help="The training bears that only some ranks are new.")
@click.option("--grace", "grace_s", type=click.FloatRange(0.0, 3_600.0), default=10.0,
              show_default=True, metavar="S", help="Of each rank after SIGTERM.")  # fmt: skip
@click.option("--hold", "hold_s", type=click.FloatRange(0.0, 86_400.0), default=600.0,
              show_default=True, metavar="S",
              help="So long the allocation is kept for an order.")  # fmt: skip
@click.option("--master-port", type=click.IntRange(1, 65_535), default=29_500, show_default=True)
@click.option("--shm", multiple=True, metavar="PATTERN",
              help="More of the job's names in /dev/shm; {job} is its number.")  # fmt: skip
@click.option("--keep-shm", multiple=True, metavar="PATTERN", help="Names that stay there.")
@click.option("--srun", "srun_options", multiple=True, metavar="OPTION",
              help='What srun gets beside: --srun=--gpus-per-node=8.')  # fmt: skip
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_obj
def command(
    session: Session, root: Path | None, nodes: int | None, tasks: int, partial: bool,
    grace_s: float, hold_s: float, master_port: int, shm: tuple[str, ...],
    keep_shm: tuple[str, ...], srun_options: tuple[str, ...], words: tuple[str, ...],
) -> int:  # fmt: skip
    """Run CMD on the nodes of this job's allocation, so that `act` can restart it in place.

    Stands last in a batch script, after `exec`. In the words of CMD {node_rank}, {nodes},
    {master}, {master_port}, {generation}, {code} and {config} are filled in.
    """
    environ = session.environ
    job = _job(environ)
    root = root or (Path(environ[DIR_VARIABLE]) if environ.get(DIR_VARIABLE) else None)
    if root is None:
        raise SettingsError(f"--dir: none is set; set it or {DIR_VARIABLE}")
    allocated = expand(environ.get("SLURM_JOB_NODELIST", ""))
    if isinstance(allocated, str) or not allocated:
        raise InputError("SLURM_JOB_NODELIST: no nodes; start it in a batch script of Slurm")
    if nodes is not None and nodes > len(allocated):
        raise SettingsError(f"--nodes {nodes}: the allocation has {len(allocated)}")
    options = LaunchOptions(
        job=job, attempt=int(environ.get("SLURM_RESTART_COUNT", "0")),
        allocated=tuple(allocated), nodes=nodes or len(allocated), words=words,
        directory=job_directory(root.absolute(), job), tasks=tasks, partial=partial,
        grace_s=grace_s, hold_s=hold_s, master_port=master_port, shm=shm, keep_shm=keep_shm,
    )  # fmt: skip
    steps = SlurmSteps(environ["SLURM_JOB_ID"], environ, srun_options)
    return Launcher(options, steps, SystemClock()).run(_versions(environ))


def _job(environ: Mapping[str, str]) -> str:
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")
    if not job:
        raise InputError("SLURM_JOB_ID: none; start it in a batch script of Slurm")
    return job


def _versions(environ: Mapping[str, str]) -> Versions:
    """What the batch script was given: the first start runs it. Raises SettingsError."""
    found: dict[str, str] = {}
    for kind in get_args(VersionKind):
        variable = f"NODEWARDEN_{kind.upper()}_VERSION"
        if said := environ.get(variable):
            found[kind] = said
            if re.fullmatch(VERSION_PATTERN, said) is None:
                raise SettingsError(f"{variable}: {said[:80]!r} names no version")
    return msgspec.convert(found, Versions)
