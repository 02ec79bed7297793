"""Who carries commands out, as the settings say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from actions.dry_run import DryRun
from actions.executors.command import CommandExecutor, check_commands
from actions.executors.launch import Launches
from actions.executors.launch_wake import waking
from actions.executors.mpirun import MpirunExecutor, pool
from actions.executors.slurm import SlurmExecutor
from actions.executors.slurm_commands import SlurmCommands
from actions.executors.slurm_port import CallTime, SlurmController
from actions.executors.slurm_rest import SlurmRest
from actions.executors.slurm_resubmit import resubmit
from actions.executors.webhook import WebhookExecutor, check_webhook
from actions.executors.with_launcher import WithLauncher
from actions.notify.http import UrllibHttp
from actions.notify.settings import ReceiverSettings
from actions.ports import Executor
from nodewarden.act_looks import Lookout
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.settings import ActSettings
from telemetry.tools import ENVIRONMENT, Tools

CALL_MARGIN_S = 2.0  # what is left of a call for what comes after the launcher's answer


def executor(settings: ActSettings, clock: Clock) -> Executor:
    """The dry run looks at what would carry commands out, where the settings name it.

    Raises SettingsError where it can never do anything.
    """
    make = _MAKERS.get(settings.executor)
    made = make(settings, clock) if make is not None else None
    if settings.dry_run:
        return DryRun(clock.time_s, made)
    if made is None:
        raise SettingsError("act.dry_run: false, and act.executor says nobody who could act")
    return made


def lookout(settings: ActSettings, clock: Clock) -> Lookout | None:
    """Looks at nodes beside the executor, with connections of its own; None where that is no
    question to anybody outside. Raises SettingsError.
    """
    if settings.executor != "slurm":
        return None
    return Lookout(slurm(settings, clock).observe)


def check_executor(settings: ActSettings, clock: Clock) -> None:
    """What can be said without a look at this machine, which may not be where `act` runs.

    Raises SettingsError.
    """
    match settings.executor:
        case "slurm" if settings.slurm.api == "rest":
            SlurmRest(settings.slurm, clock, lambda: 0.0)
        case "mpirun":
            pool(settings.mpirun)
        case "webhook":
            check_webhook(settings.webhook)
        case "command":
            check_commands(settings.command)
        case _:
            pass


def slurm(settings: ActSettings, clock: Clock) -> SlurmExecutor:
    """Slurm, through its commands or slurmrestd. Raises SettingsError."""
    of_slurm = settings.slurm
    time = CallTime(clock, settings.call_timeout_s, of_slurm.timeout_s)
    commands: SlurmCommands | None = None
    if of_slurm.api == "commands" or of_slurm.rest_lacks == "commands":
        named = {"scontrol": of_slurm.scontrol, "scancel": of_slurm.scancel}
        if of_slurm.sacct:
            named["sacct"] = of_slurm.sacct
        for key, program in named.items():
            _find(f"act.slurm.{key}", program)
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


def launched(settings: ActSettings, clock: Clock) -> Executor:
    """Slurm, and the launchers of its jobs where there are any. Raises SettingsError."""
    scheduler = slurm(settings, clock)
    if not settings.launch.dir:
        return scheduler
    root = Path(settings.launch.dir)
    if not root.is_absolute() or not root.is_dir():
        raise SettingsError(f"act.launch.dir: {settings.launch.dir!r} is no directory here")
    wait_s = max(settings.call_timeout_s - CALL_MARGIN_S, settings.call_timeout_s / 2.0)
    conf = {"SLURM_CONF": settings.slurm.conf} if settings.slurm.conf else {}
    wakes = waking(settings.slurm.scancel, Tools(clock, {**ENVIRONMENT, **conf}))
    return WithLauncher(scheduler, Launches(root, wakes, clock, wait_s), clock)


def mpirun(settings: ActSettings, clock: Clock) -> Executor:
    """The one job of a pool. Raises SettingsError."""
    return MpirunExecutor(settings.mpirun, clock, lambda: Tools(clock))


def webhook(settings: ActSettings, clock: Clock) -> Executor:
    """A service of the site. Raises SettingsError."""
    check_webhook(settings.webhook)
    connection = ReceiverSettings(
        kind="webhook", timeout_s=settings.webhook.timeout_s, ca_file=settings.webhook.ca_file
    )
    return WebhookExecutor(settings.webhook, UrllibHttp("webhook", connection, "act"), clock)


def programs(settings: ActSettings, clock: Clock) -> Executor:
    """Programs of the site. Raises SettingsError."""
    check_commands(settings.command)
    for key in ("isolate", "release", "restart"):
        words: tuple[str, ...] = getattr(settings.command, key)
        if words:
            _find(f"act.command.{key}", words[0])
    tools = Tools(clock, printed_max=settings.command.output_max_bytes)
    return CommandExecutor(settings.command, tools, clock)


def _find(key: str, program: str) -> None:
    """Raises SettingsError where this machine has none."""
    if shutil.which(program, path=ENVIRONMENT["PATH"]) is None:
        raise SettingsError(f"{key}: no program {program}; give its path")


_MAKERS: dict[str, Callable[[ActSettings, Clock], Executor]] = {
    "slurm": launched, "mpirun": mpirun, "webhook": webhook, "command": programs,
}  # fmt: skip
