"""Who carries commands out, as the settings say, and which settings stop the start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actions.dry_run import DryRun
from actions.executors.command import CommandExecutor
from actions.executors.mpirun import MpirunExecutor
from actions.executors.webhook import WebhookExecutor
from nodewarden.executing import executor, lookout
from nodewarden.executor_checks import wrong_together
from telemetry.errors import SettingsError
from telemetry.settings import (
    ActCommandSettings,
    ActLaunchSettings,
    ActMpirunSettings,
    ActSettings,
    ActSlurmSettings,
    ActWebhookSettings,
)
from telemetry.testing import ManualClock

MPIRUN = ActMpirunSettings(command=("mpirun",), pool=("n[1-2]",))
WEBHOOK = ActWebhookSettings(url="https://ops.example/", key="k" * 16)
COMMAND = ActCommandSettings(isolate=("true", "{node}"))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (ActSettings(executor="mpirun", mpirun=MPIRUN), MpirunExecutor),
        (ActSettings(executor="webhook", webhook=WEBHOOK), WebhookExecutor),
        (ActSettings(executor="command", command=COMMAND), CommandExecutor),
    ],
)
def test_each_executor_is_made_and_only_a_dry_run_is_the_default(
    settings: ActSettings, kind: type[object]
) -> None:

    assert isinstance(executor(settings, ManualClock()), DryRun)
    acting = msgspec.structs.replace(settings, dry_run=False)
    assert isinstance(executor(acting, ManualClock()), kind)
    assert [] == list(wrong_together(acting))


@pytest.mark.parametrize(
    "settings",
    [
        ActSettings(executor="mpirun"),
        ActSettings(executor="webhook"),
        ActSettings(executor="webhook", webhook=ActWebhookSettings(
            url="https://ops.example/", key="k" * 16, ca_file="/no/such/file")),
        ActSettings(executor="command"),
        ActSettings(executor="command", command=ActCommandSettings(isolate=("/no/such/program",))),
    ],
)  # fmt: skip
def test_an_executor_that_can_do_nothing_stops_the_start(settings: ActSettings) -> None:
    with pytest.raises(SettingsError, match=rf"^act\.{settings.executor}") as caught:
        executor(settings, ManualClock())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_slurm_that_may_be_slow_is_looked_at_beside_the_loop(
    tmp_path: Path, dry_run: bool
) -> None:
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    slurm = ActSlurmSettings(scontrol=str(program), scancel=str(program))
    settings = ActSettings(executor="slurm", dry_run=dry_run, slurm=slurm)
    assert lookout(settings, ManualClock()) is not None
    assert lookout(ActSettings(executor="mpirun", mpirun=MPIRUN), ManualClock()) is None


def test_a_launch_directory_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    slurm = ActSlurmSettings(scontrol=str(program), scancel=str(program))
    for directory in ("relative", str(tmp_path / "missing")):
        settings = ActSettings(
            executor="slurm", slurm=slurm, launch=ActLaunchSettings(dir=directory)
        )
        with pytest.raises(SettingsError, match=r"act\.launch\.dir"):
            executor(settings, ManualClock())


def test_settings_that_nobody_uses_and_calls_that_last_too_long_are_told() -> None:
    unused = ActSettings(executor="slurm", mpirun=MPIRUN, webhook=WEBHOOK)
    assert {"act.mpirun", "act.webhook"} == {key for key, _ in wrong_together(unused)}
    launch = ActSettings(launch=ActLaunchSettings(dir="/jobs"))
    assert ["act.launch"] == [key for key, _ in wrong_together(launch)]
    long = ActSettings(executor="webhook", webhook=WEBHOOK, call_timeout_s=5.0)
    assert ["act.webhook.timeout_s"] == [key for key, _ in wrong_together(long)]
