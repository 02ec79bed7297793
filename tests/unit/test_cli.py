"""The command line: one line an error, the right exit status, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

import nodewarden.cli
from nodewarden.cli import cli, run
from telemetry.errors import InputError, NodewardenError, PublishError, SettingsError
from telemetry.metrics import BY_SOURCE_NAME

XID79 = Path(__file__).parents[1] / "data" / "capture-xid79"


def said(capsys: pytest.CaptureFixture[str], *arguments: str, **environ: str) -> tuple[int, str]:
    """Exit status and standard error of a refused command line."""
    status = run(arguments, environ)
    captured = capsys.readouterr()
    assert captured.out == ""
    return status, captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"], {}) == 0
    assert capsys.readouterr().out.startswith("nodewarden ")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], {}) == 0
    out = capsys.readouterr().out
    assert "explain" in out
    assert "config" in out


def test_every_command_file_is_a_command_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.list_commands(click.Context(cli)):
        assert run([name, "--help"], {}) == 0
        assert "Usage: nodewarden " + name in capsys.readouterr().out


def test_nothing_at_all_shows_help_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    status, err = said(capsys)
    assert status == 2
    assert err.startswith("Usage: nodewarden")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "nodewarden: No such command 'nope'. See 'nodewarden --help'.\n"),
        (["explain", "xid"],
         "nodewarden: Missing argument 'CODE'. See 'nodewarden explain xid --help'.\n"),
        (["explain", "xid", "200"],
         "nodewarden: Xid 200: no source knows it; the nearest known code is 173\n"),
        (["explain", "xid", "seventy"],
         "nodewarden: Xid seventy: no code; give a number such as 79\n"),
        (["explain", "xid", "9" * 50],
         f"nodewarden: Xid {'9' * 50}: no code; give a number such as 79\n"),
        (["explain", "xid", "７９"],
         "nodewarden: Xid ７９: no code; give a number such as 79\n"),
        (["explain", "metric", "gpu_temprature_celsius"],
         "nodewarden: metric gpu_temprature_celsius: not in the catalogue; "
         "did you mean gpu_temperature_celsius?\n"),
        (["explain", "metric", "a\n\x1b[31mb"],
         "nodewarden: metric a [31mb: not in the catalogue; "),
        (["parse"],
         "nodewarden: Missing argument 'KIND'. Choose from: collectives, exporter, kernel, nic, "
         "slurm, stacks, training. See 'nodewarden parse --help'.\n"),
        (["parse", "kernel", "/"], "nodewarden: /: is a directory; give its files, or replay it\n"),
        (["replay", str(XID79), "--from", "1e400"], "nodewarden: --from '1e400': no time; "),
        (["replay", str(XID79), "--to", "nan"], "nodewarden: --to 'nan': no time; "),
        (["replay", str(XID79), "--from", "200", "--to", "100"],
         "nodewarden: --from lies after --to; exchange them\n"),
        (["config", "check", "--config", "missing.toml"],
         "nodewarden: missing.toml: No such file or directory; "
         "name a settings file that is there\n"),
    ],
)  # fmt: skip
def test_what_is_refused_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    status, err = said(capsys, *arguments)
    assert status == 2
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_explain_xid_is_plain_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "xid", "79"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Xid 79 ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert "isolate on one event: yes" in lines
    assert "NVIDIA, at once: RESTART_BM" in lines
    assert "Aegis: -" in lines


def test_explain_is_a_panel_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["explain", "xid", "64"], {}) == 0
    out = capsys.readouterr().out
    assert "─ Xid 64 INFOROM_DRAM_RETIREMENT_FAILURE ─" in out
    assert "NVIDIA over Aegis' hint" in out


def test_explain_metric_knows_the_exporters_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "metric", "DCGM_FI_DEV_POWER_USAGE"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gpu_power_watts"
    assert "direction: low values hurt" in lines
    assert "valid range: 1 to 2500 watts" in lines


def test_explain_metric_says_where_a_counter_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "metric", "node_infiniband_link_downed_total"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    width = BY_SOURCE_NAME["node_infiniband_link_downed_total"].width_bits
    assert f"wraps at: {width} bits" in lines


def test_config_show_prints_every_value(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "n.toml"
    file.write_text("[engine.zscore]\nsigmas = 3")
    assert run(["config", "show"], {"NODEWARDEN_CONFIG": str(file)}) == 0
    assert f"sigmas = 3.0  # {file}" in capsys.readouterr().out
    assert run(["config", "check", "--config", str(file)], {}) == 0
    assert capsys.readouterr().out.startswith("settings are fine")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SettingsError("f.toml: no"), 2, "nodewarden: f.toml: no\n"),
        (InputError("a\nb\x1b[1m"), 2, "nodewarden: a b [1m\n"),
        (PublishError("nodewarden.telemetry"), 3, "nodewarden: nodewarden.telemetry\n"),
        (NodewardenError("x"), 2, "nodewarden: x\n"),
        (click.ClickException("y"), 2, "nodewarden: y\n"),
        (KeyboardInterrupt(), 130, "\nnodewarden: interrupted\n"),
        (FileNotFoundError(2, "No such file", "r.html"), 2,
         "nodewarden: r.html: No such file; check it and its permissions\n"),
        (ZeroDivisionError("oops"), 3,
         "nodewarden: unexpected ZeroDivisionError: oops; "
         "NODEWARDEN_TRACE=1 shows where it happened\n"),
    ],
)  # fmt: skip
def test_errors_end_in_one_line(
    capsys: pytest.CaptureFixture[str],
    failing: list[BaseException],
    error: BaseException,
    status: int,
    line: str,
) -> None:
    failing.append(error)
    assert said(capsys, "fail") == (status, line)


def test_a_trace_is_shown_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], failing: list[BaseException]
) -> None:
    failing.append(ZeroDivisionError("oops"))
    status, err = said(capsys, "fail", NODEWARDEN_TRACE="1")
    assert status == 3
    assert "Traceback" in err


def test_a_command_ends_with_the_number_it_returns(failing: list[BaseException]) -> None:
    assert failing == []
    assert run(["fail"], {}) == 1


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `fail` that raises what the list holds, else returns 1."""
    errors: list[BaseException] = []

    @click.group()
    def group() -> None:
        """Stands in for ours."""

    @group.command()
    def fail() -> int:
        for error in errors:
            raise error
        return 1

    monkeypatch.setattr(nodewarden.cli, "cli", group)
    return errors


def test_a_reader_that_leaves_is_no_error() -> None:
    program = f"{sys.executable} -m nodewarden config show | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_no_error_of_ours() -> None:
    program = f"{sys.executable} -m nodewarden config show > /dev/full"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    said = "nodewarden: cannot write: No space left on device; make room\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_terminal_without_our_letters_shows_their_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "explain", "metric", "λδ"],
        capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii:strict"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(b"nodewarden: metric ")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "explain", "xid", "0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "nodewarden: Xid 0: no source knows it; the nearest known code is 1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('executor = "webhook"', "act.webhook.url: expected https://HOST/PATH"),
        ('executor = "command"', "act.command: none of isolate, release and restart is set"),
        ('executor = "mpirun"', "act.mpirun.command is not set"),
        ('executor = "slurm"\nslurm = { api = "rest", url = "ftp://x" }', "act.slurm.url: "),
    ],
)
def test_config_check_says_what_would_stop_act(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text(f"[act]\n{text}\n", "utf-8")
    assert run(["config", "check", "--config", str(file)], {}) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert said in found


def test_config_check_looks_for_no_program_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text('[act]\nexecutor = "slurm"\nslurm = { scontrol = "/no/such" }\n', "utf-8")
    assert run(["config", "check", "--config", str(file)], {}) == 0
    assert "fine" in capsys.readouterr().out
