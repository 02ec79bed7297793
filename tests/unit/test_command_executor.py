"""Programs of the site: names filled in, no shell, at most once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from actions.executors.command import CommandExecutor, check_commands, filled
from nodewarden.clock import SystemClock
from telemetry.actions import Preconditions
from telemetry.errors import SettingsError
from telemetry.settings import ActCommandSettings
from telemetry.tools import Tools
from tests.commands import command

CLOCK = SystemClock()


def executor(**settings: object) -> CommandExecutor:
    return CommandExecutor(ActCommandSettings(**settings), Tools(CLOCK), CLOCK)  # type: ignore[arg-type]


def script(directory: Path, body: str) -> str:
    path = directory / "program"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_program_runs_once_a_node_with_its_words_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = script(
        tmp_path, f"open({str(log)!r}, 'a').write(repr(sys.argv[1:]) + chr(10)); print('fine')"
    )
    does = executor(isolate=(program, "--node={node}", "{incident}", "$(id) ; {job} *"))

    done = does.execute(command("isolate", "n1", "n2", job="7"))

    assert ("done", "n1: fine; n2: fine") == (done.status, done.reason)
    assert [
        "['--node=n1', 'incident1', '$(id) ; 7 *']", "['--node=n2', 'incident1', '$(id) ; 7 *']",
    ] == log.read_text().splitlines()  # fmt: skip


@pytest.mark.parametrize("node", ["-rf", "n1;id", "n1 n2", "", "n[1-9]", "a\nb", "n" * 300])
def test_what_is_no_name_is_refused_before_anything_starts(tmp_path: Path, node: str) -> None:
    log = tmp_path / "log"
    program = script(tmp_path, f"open({str(log)!r}, 'a')")
    does = executor(isolate=(program, "{node}"))
    done = does.execute(command("isolate", "n1", node)) if node else None
    if done is not None:
        assert "refused" == done.status
        assert "is no name" in done.reason
        assert not log.exists()


def test_a_name_is_never_looked_at_for_fields() -> None:
    one = command("restart", job="{incident}", versions={"code": "{node}"})
    assert ["{incident}", "{node}"] == filled(("{job}", "{code}"), one, "n1")


def test_a_program_that_fails_ends_it_with_its_last_line(tmp_path: Path) -> None:
    program = script(tmp_path, "print('first'); print('no such node'); sys.exit(3)")
    done = executor(isolate=(program,)).execute(command("isolate", "n1", "n2"))
    assert ("failed", "n1: exit 3: no such node") == (done.status, done.reason)


def test_a_program_that_does_not_end_may_have_done_it(tmp_path: Path) -> None:
    program = script(tmp_path, "import time; time.sleep(60)")
    done = executor(isolate=(program,), timeout_s=0.2).execute(command("isolate", "n1"))
    assert "unknown" == done.status
    assert "not done in time" in done.reason


def test_a_program_that_is_not_there_has_done_nothing() -> None:
    done = executor(isolate=("/no/such/program",)).execute(command("isolate", "n1"))
    assert "failed" == done.status


def test_more_output_than_the_bound_is_not_read(tmp_path: Path) -> None:
    program = script(tmp_path, "print('x' * 1_000_000)")
    does = CommandExecutor(
        ActCommandSettings(isolate=(program,)), Tools(CLOCK, printed_max=1_000), CLOCK
    )
    assert "unknown" == does.execute(command("isolate", "n1")).status


def test_nobody_can_read_back_what_a_program_did() -> None:
    does = executor(isolate=("true",))
    assert Preconditions(job="7") == does.observe(["n1"], "7")
    assert does.achieved(command("isolate", "n1"), Preconditions()) is None


def test_each_step_has_its_program_and_one_program_is_a_whole_restart(tmp_path: Path) -> None:
    program = script(tmp_path, "print(sys.argv[1])")
    does = executor(
        isolate=(program, "isolate"), release=(program, "release"), restart=(program, "r-{job}")
    )
    whole = does.execute(command("isolate_and_restart", "n1", job="7"))
    assert ("done", "n1: isolate; 7: r-7") == (whole.status, whole.reason)
    assert "n1: isolate" == does.execute(command("restart", "n1", step="drain")).reason
    assert "n1: release" == does.execute(command("isolate", "n1", step="undrain")).reason
    restart = command("restart", "n1", step="restart", mode="requeue", job="7")
    assert "7: r-7" == does.execute(restart).reason
    for step in ("stop", "clean", "replace"):
        part = command("restart", "n1", step=step, mode="requeue", job="7")
        assert "done" == does.execute(part).status
        other = command("restart", "n1", step=step, mode="in_place", job="7")
        assert "refused" == does.execute(other).status
    unset = executor(isolate=("true",)).execute(restart)
    assert ("refused", "act.command.restart is not set") == (unset.status, unset.reason)
    assert "refused" == does.execute(command("isolate", "n1", dry_run=True)).status


def test_settings_with_an_unknown_field_or_without_any_program_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"act\.command: none of"):
        check_commands(ActCommandSettings())
    with pytest.raises(SettingsError, match=r"act\.command\.isolate: \{host\} is none of \{node\}"):
        check_commands(ActCommandSettings(isolate=("drain", "{host}")))
    check_commands(ActCommandSettings(isolate=("drain", "{node}", "{job}", "{ }")))
