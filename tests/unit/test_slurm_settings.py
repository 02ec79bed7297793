"""Settings of acting on Slurm: what contradicts itself, or can do nothing, stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.dry_run import DryRun
from actions.executors.slurm import SlurmExecutor
from nodewarden.clock import SystemClock
from nodewarden.executing import executor, slurm
from nodewarden.executor_checks import wrong_together
from nodewarden.settings_file import load, show
from telemetry.errors import SettingsError
from telemetry.settings import ActSettings, ActSlurmSettings
from tests.slurm_fake import command

CLOCK = SystemClock()


def acting(**of_slurm: object) -> ActSettings:
    return ActSettings(dry_run=False, executor="slurm", slurm=ActSlurmSettings(**of_slurm))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "key"),
    [(ActSettings(dry_run=False), "act.dry_run"),
     (ActSettings(slurm=ActSlurmSettings(conf="/x")), "act.slurm"),
     (acting(api="rest"), "act.slurm.url"), (acting(url="http://x"), "act.slurm.url"),
     (acting(token="t"), "act.slurm.token"),
     (acting(rest_lacks="commands"), "act.slurm.rest_lacks"),
     (acting(api="rest", url="http://x", token="t", token_file="/t"), "act.slurm.token"),
     (acting(timeout_s=31.0), "act.slurm.timeout_s"),
     (acting(reason_prefixes_before=("old one",)), "act.slurm.reason_prefixes_before")],
)  # fmt: skip
def test_what_contradicts_itself_is_named(settings: ActSettings, key: str) -> None:
    assert key in [name for name, _ in wrong_together(settings)]


def test_what_is_fine_is_fine() -> None:
    rest = acting(api="rest", url="http://x", token_file="/t", rest_lacks="commands")
    for settings in (ActSettings(), acting(), rest, ActSettings(executor="slurm")):
        assert [] == list(wrong_together(settings))


def test_a_dry_run_looks_at_slurm_and_changes_nothing(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\nexit 1\n')
    program.chmod(0o755)
    of_slurm = ActSlurmSettings(scontrol=str(program), scancel=str(program))
    one = executor(ActSettings(executor="slurm", slurm=of_slurm), CLOCK)
    assert isinstance(one, DryRun)
    done = one.execute(command("isolate", "n1"))
    assert ("done", "dry run: would isolate n1, and nothing was done") == (done.status, done.reason)
    assert not (tmp_path / "calls").exists()


def test_a_program_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"act\.slurm\.scontrol: no program /none/scontrol"):
        slurm(acting(scontrol="/none/scontrol"), CLOCK)
    with pytest.raises(SettingsError, match="says nobody who could act"):
        executor(ActSettings(dry_run=False), CLOCK)


def test_by_slurmrestd_no_program_is_needed() -> None:
    one = slurm(acting(api="rest", url="http://127.0.0.1:1", scontrol="/none/scontrol"), CLOCK)
    assert isinstance(one, SlurmExecutor)
    with pytest.raises(SettingsError, match=r"act\.slurm\.url"):
        slurm(acting(api="rest", url="no url"), CLOCK)


def test_the_token_is_not_shown() -> None:
    shown = show(load(None, {"NODEWARDEN_ACT__SLURM__TOKEN": "topsecret",
                             "NODEWARDEN_ACT__SLURM__API": "rest",
                             "NODEWARDEN_ACT__EXECUTOR": "slurm",
                             "NODEWARDEN_ACT__SLURM__URL": "http://x"}))  # fmt: skip
    assert "topsecret" not in shown
    assert "token is set and not shown" in shown
