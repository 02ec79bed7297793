"""`nodewarden run` as a process: what it leaves alone, what it tells, commands that misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.step_reporter import SOCKET_VARIABLE

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
RUN = [sys.executable, "-m", "nodewarden", "run"]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}


class Listener:
    """The agent's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(DEADLINE_S)

    def next(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._socket.recv(1 << 20))
        return said

    def end(self) -> dict[str, Any]:
        while (said := self.next())["launch"] != "end":
            pass
        return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path / "s")
    yield listener
    listener.close()


def run(
    agent: Listener | None, *words: str, **more: Any
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    return subprocess.run(
        words_of(*words), cwd=ROOT, env=environ(agent, more.pop("env", {})), timeout=DEADLINE_S,
        capture_output=True, check=False, **more,
    )  # fmt: skip


def words_of(*words: str) -> list[str]:
    return [*RUN, *words] if "--" in words else [*RUN, "--", *words]


def environ(agent: Listener | None, more: dict[str, str]) -> dict[str, str]:
    path = str(agent.path) if agent is not None else "/nowhere/s"
    return {**PLAIN, SOCKET_VARIABLE: path, "PYTHONPATH": str(ROOT), **more}


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


@pytest.mark.parametrize("listens", [True, False])
def test_output_and_exit_status_are_the_command_s_with_and_without_an_agent(
    agent: Listener, listens: bool
) -> None:
    done = run(agent if listens else None, "sh", "-c", "cat; echo out; printf 'e\\0rr' >&2; exit 3",
               input=b"in\n")  # fmt: skip
    assert (3, b"in\nout\n", b"e\0rr") == (done.returncode, done.stdout, done.stderr)


def test_the_agent_hears_of_the_start_and_of_the_end_with_the_last_words(agent: Listener) -> None:
    env = {"RANK": "17", "SLURM_PROCID": "3", "SLURM_JOB_ID": "42"}
    run(agent, *script("import sys; print('step 1', file=sys.stderr); 1/0"), env=env)
    start, end = agent.next(), agent.next()
    assert ("start", "42", 17) == (start["launch"], start["job"], start["rank"])
    assert ("end", 1, start["pid"]) == (end["launch"], end["exitcode"], end["pid"])
    assert ["step 1", "ZeroDivisionError: division by zero"] == [
        end["stderr"][0], end["stderr"][-1],
    ]  # fmt: skip
    assert Path(sys.executable).name == end["command"]
    assert "1/0" not in json.dumps(start)  # arguments may hold secrets


@pytest.mark.parametrize(
    ("env", "words", "job", "rank"),
    [
        ({"SLURM_PROCID": "5", "SLURM_JOB_ID": "7"}, ["true"], "7", 5),
        ({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}, ["true"],
         "7_2", None),
        ({"SLURM_PROCID": "5"}, ["--job", "mine", "--rank", "0", "--", "true"], "mine", 0),
        ({"RANK": "-1", "SLURM_PROCID": "x"}, ["true"], "", None),
        # The scheduler's number is the node's where a launcher starts the ranks.
        ({"SLURM_PROCID": "5"}, ["env", "torchrun=1", "true"], "", None),
    ],
)  # fmt: skip
def test_job_and_rank_are_the_surroundings(
    agent: Listener, env: dict[str, str], words: list[str], job: str, rank: int | None
) -> None:
    assert 0 == run(agent, *words, env=env).returncode
    start = agent.next()
    assert (job, rank) == (start["job"], start["rank"])


def test_a_command_that_a_signal_ends_ends_the_wrapper_by_the_same(agent: Listener) -> None:
    for number in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV):
        done = run(agent, "sh", "-c", f"echo last >&2; kill -{int(number)} $$")
        assert -number == done.returncode
        end = agent.end()
        assert (number.name, ["last"]) == (end["signal"], end["stderr"])
        assert "exitcode" not in end


def started(agent: Listener, text: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        words_of(*script(text)), cwd=ROOT, env=environ(agent, {}), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert b"ready\n" == process.stdout.readline()
    return process


def test_signals_are_passed_on(agent: Listener) -> None:
    process = started(agent, (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    ))  # fmt: skip
    assert process.stdout is not None
    process.send_signal(signal.SIGUSR1)
    assert b"usr1\n" == process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert 7 == process.returncode
    end = agent.end()
    assert (7, "SIGTERM") == (end["exitcode"], end["passed"])


def test_the_command_does_not_outlive_a_killed_wrapper(agent: Listener) -> None:
    process = started(agent, "import os, time; print('ready', flush=True); time.sleep(60)")
    pid = agent.next()["pid"]
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    until_s = time.monotonic() + DEADLINE_S
    while is_alive(pid):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status


def test_a_command_that_closes_its_standard_error_is_waited_for(agent: Listener) -> None:
    done = run(agent, "sh", "-c", "echo before >&2; exec 2>&-; sleep 0.3; exit 4")
    assert (4, b"before\n") == (done.returncode, done.stderr)
    assert (4, ["before"]) == (agent.end()["exitcode"], ["before"])


def test_a_child_that_keeps_standard_error_open_does_not_hold_the_wrapper(agent: Listener) -> None:
    done = subprocess.run(
        words_of("sh", "-c", "echo said >&2; sleep 25 >/dev/null & exit 5"), cwd=ROOT,
        env=environ(agent, {}), timeout=20.0, check=False, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert (5, b"said\n") == (done.returncode, done.stderr)
    assert ["said"] == agent.end()["stderr"]


def test_a_reader_that_left_is_what_the_command_sees(agent: Listener) -> None:
    read, write = os.pipe()
    os.close(read)
    text = "import os\nfor _ in range(100): os.write(2, b'x' * 65536)"
    done = subprocess.run(
        words_of(*script(text)), cwd=ROOT, env=environ(agent, {}), stderr=write, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    os.close(write)
    assert 1 == done.returncode  # BrokenPipeError, as without the wrapper


def test_much_standard_error_goes_on_whole_and_only_its_end_is_kept(agent: Listener) -> None:
    text = (
        "import os\nfor i in range(4000): os.write(2, (f'line {i} ' + 'x' * 1000 + '\\n').encode())"
    )
    done = run(agent, *script(text))
    lines = done.stderr.splitlines()
    assert (4_000, b"line 3999 ") == (len(lines), lines[-1][:10])
    kept = agent.end()["stderr"]
    assert kept[-1].startswith("line 3999 ")
    assert sum(map(len, kept)) <= 16_384


def test_junk_bars_and_colours_are_kept_as_text(agent: Listener) -> None:
    text = (
        "import os\n"
        "os.write(2, b''.join(b'\\r%d%%' % i for i in range(101)) + b'\\n')\n"
        "os.write(2, b'\\x1b[31mRuntimeError: red\\x1b[0m\\n' + bytes(range(256)) * 40)\n"
    )
    run(agent, *script(text))
    end = agent.end()["stderr"]
    assert all(line.isprintable() or "\t" in line or "\ufffd" in line for line in end)


def test_lines_that_json_makes_long_still_fit_into_one_datagram(agent: Listener) -> None:
    run(
        agent,
        *script("import os\nos.write(2, b'\\xff' * 200 + b'\\n')\nos.write(2, b'\\xfe\"' * 9000)"),
    )
    assert agent.end()["stderr"]


def test_what_does_not_start_is_said_and_ends_as_in_a_shell(agent: Listener) -> None:
    done = run(agent, "/no/such/command")
    assert (127, b"nodewarden: /no/such/command: No such file or directory\n") == (
        done.returncode, done.stderr,
    )  # fmt: skip
    assert 127 == agent.end()["exitcode"]
    assert 126 == run(agent, str(ROOT)).returncode
    assert 2 == subprocess.run(RUN, cwd=ROOT, capture_output=True, check=False).returncode


def test_what_the_launcher_left_open_stays_open_for_the_command(agent: Listener) -> None:
    read, write = os.pipe()
    done = subprocess.run(
        words_of(*script(f"import os; os.write({write}, b'through\\n')")), cwd=ROOT,
        env=environ(agent, {}), pass_fds=[write], check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert (0, b"through\n") == (done.returncode, file.read())


def test_a_terminal_is_the_command_s_own(agent: Listener) -> None:
    controller, terminal = os.openpty()
    done = subprocess.run(
        words_of(*script("import os, sys; sys.exit(40 + os.isatty(2))")), cwd=ROOT,
        env=environ(agent, {}), stderr=terminal, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    os.close(terminal)
    os.close(controller)
    assert 41 == done.returncode
