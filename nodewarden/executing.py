"""Who carries commands out, as the settings say."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from actions.dry_run import DryRun
from actions.executors.slurm import SlurmExecutor
from actions.executors.slurm_commands import SlurmCommands
from actions.executors.slurm_port import CallTime, SlurmController
from actions.executors.slurm_rest import SlurmRest
from actions.executors.slurm_resubmit import resubmit
from actions.ports import Executor
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.settings import ActSettings
from telemetry.tools import ENVIRONMENT


def executor(settings: ActSettings, clock: Clock) -> Executor:
    """The dry run looks at what would carry commands out, where the settings name it.

    Raises SettingsError where it can never do anything.
    """
    make = _MAKERS.get(settings.executor)
    if settings.executor and make is None:
        raise SettingsError(f"act.executor: {settings.executor!r} is not there yet")
    made = make(settings, clock) if make is not None else None
    if settings.dry_run:
        return DryRun(clock.time_s, made)
    if made is None:
        raise SettingsError("act.dry_run: false, and act.executor says nobody who could act")
    return made


def slurm(settings: ActSettings, clock: Clock) -> SlurmExecutor:
    """Slurm, through its commands or slurmrestd. Raises SettingsError."""
    of_slurm = settings.slurm
    time = CallTime(clock, settings.call_timeout_s, of_slurm.timeout_s)
    commands: SlurmCommands | None = None
    if of_slurm.api == "commands" or of_slurm.rest_lacks == "commands":
        for key, program in (("scontrol", of_slurm.scontrol), ("scancel", of_slurm.scancel)):
            if shutil.which(program, path=ENVIRONMENT["PATH"]) is None:
                raise SettingsError(f"act.slurm.{key}: no program {program}; give its path")
        commands = SlurmCommands(of_slurm, clock, time.left_s)
    control: SlurmController | None = commands
    if of_slurm.api == "rest":
        control = SlurmRest(of_slurm, clock, time.left_s, commands)
    assert control is not None
    again = None
    if of_slurm.resubmit:
        environment = {"SLURM_CONF": of_slurm.conf} if of_slurm.conf else {}
        again = resubmit(of_slurm.resubmit, environment, clock, time.left_s)
    return SlurmExecutor(control, of_slurm, clock, time, again)


_MAKERS: dict[str, Callable[[ActSettings, Clock], Executor]] = {"slurm": slurm}
