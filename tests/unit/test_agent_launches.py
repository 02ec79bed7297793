"""What the agent makes of `nodewarden run`: events of processes that died, and junk."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import launch
from collectors.agent.last_words import failure_of
from collectors.agent.launches import BYTES_MAX, LINES_MAX, MARK, Launch, event_of, read_launch
from collectors.agent.step_socket import StepSocket
from collectors.step_reporter import StepReporter
from detectors.critical_rules import process
from telemetry.codec import decode, encode
from telemetry.records import Event, Rejected
from telemetry.testing import ManualClock

NOW_S = 1_700_000_000.0
NCCL = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 7, in <module>',
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, remote process"
    " exited or there was a network error, NCCL version 2.18.1",
]
USER = ["Traceback (most recent call last):", '  File "t.py", line 1, in f', "KeyError: 'lr'"]
LAUNCHER = [
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2024-01-01_10:00:00",
    "  host      : n1",
    "  rank      : 5 (local_rank: 5)",
    "  exitcode  : -9 (pid: 2630)",
    "  error_file: <N/A>",
    "  traceback : Signal 9 (SIGKILL) received by PID 2630",
    "============================================================",
]


def ended(**more: Any) -> bytes:
    return launch.datagram({"launch": "end", "at": NOW_S, "job": "j1", "rank": 17, **more})


def event(**more: Any) -> Event:
    said = read_launch(ended(**more), NOW_S)
    assert isinstance(said, Launch), said
    made = event_of(said, "n1", "boot")
    assert made is not None
    assert isinstance(decode(encode(made), ""), Event)  # it passes the wire
    return made


@pytest.mark.parametrize(
    ("more", "class_", "severity"),
    [
        ({"exitcode": 1, "stderr": USER}, "user_code", "critical"),
        ({"exitcode": 1, "stderr": NCCL}, "nccl", "critical"),
        ({"signal": "SIGABRT", "stderr": NCCL}, "nccl", "critical"),
        ({"signal": "SIGKILL", "stderr": []}, "killed", "critical"),
        ({"signal": "SIGSEGV"}, "crash", "critical"),
        ({"signal": "SIGRT40"}, "unknown", "critical"),
        ({"exitcode": 137}, "killed", "critical"),
        ({"exitcode": 1, "stderr": ["torch.OutOfMemoryError: CUDA out of memory. Tried to"]},
         "oom", "critical"),
        ({"exitcode": 1, "stderr": LAUNCHER}, "killed", "critical"),
        ({"exitcode": 127, "stderr": ["nosuch: No such file or directory"]}, "unknown", "critical"),
        # Somebody asked it to end.
        ({"signal": "SIGTERM", "passed": "SIGTERM"}, "terminated", "warning"),
    ],
)  # fmt: skip
def test_the_last_words_tell_the_class_before_the_exit_code_does(
    more: dict[str, Any], class_: str, severity: str
) -> None:
    made = event(**more)
    assert (class_, severity, "process") == (made.class_, made.severity, made.type)
    assert ("n1", "boot", "j1", "rank:17") == (made.node, made.boot_id, made.job, made.entity)


def test_the_event_holds_how_it_ended_and_the_last_lines() -> None:
    made = event(exitcode=1, pid=7, command="python", stderr=USER)
    assert ("exit code 1: KeyError: 'lr'", 7, "python") == (made.text, made.pid, made.process)
    assert {"event": "exit", "exitcode": 1, "stderr": "\n".join(USER)} == made.details
    made = event(signal="SIGKILL", stderr=["step 7", "step 8"])
    assert ("SIGKILL: step 8", "SIGKILL") == (made.text, made.details["signal"])


@pytest.mark.parametrize("said", [{"launch": "start"}, {"launch": "end", "exitcode": 0}])
def test_a_start_and_a_clean_end_are_no_events(said: dict[str, Any]) -> None:
    read = read_launch(json.dumps({**said, "at": NOW_S}).encode(), NOW_S)
    assert isinstance(read, Launch)
    assert event_of(read, "n1", "") is None


@pytest.mark.parametrize(
    "data",
    [
        MARK, MARK + b'"end"}', MARK + b'"other","at":1.0}', ended(), ended(exitcode=256),
        ended(exitcode=1, signal="SIGKILL"), ended(exitcode=1, rank=-1), ended(exitcode="1"),
        ended(signal="kill -9 \x00"), ended(exitcode=1, job="a\nb"), ended(exitcode=1, at=1e300),
        ended(exitcode=1, job="x" * 300), ended(exitcode=1, stderr=["x"] * (LINES_MAX + 1)),
        ended(exitcode=1, stderr=[["x"]]), MARK + b"[" * 9_000, MARK + b'"end"' + b" " * BYTES_MAX,
    ],
)  # fmt: skip
def test_what_is_no_launch_is_rejected(data: bytes) -> None:
    assert isinstance(read_launch(data, NOW_S), Rejected)


@given(st.binary(max_size=400))
def test_junk_never_raises(data: bytes) -> None:
    assert isinstance(read_launch(MARK + data, NOW_S), Launch | Rejected)


@given(st.lists(st.text(max_size=300), max_size=64), st.integers(-64, 255))
def test_any_last_words_have_a_class(lines: list[str], code: int) -> None:
    assert failure_of(lines, code).class_


@given(st.binary(max_size=40_000))
def test_any_standard_error_fits_into_a_datagram_that_is_accepted(data: bytes) -> None:
    last = launch.LastLines()
    for at in range(0, len(data), 999):
        last.feed(data[at : at + 999])
    sent = ended(exitcode=1, stderr=last.lines())
    assert len(sent) <= BYTES_MAX
    assert isinstance(read_launch(sent, NOW_S), Launch)


def test_a_time_that_is_not_ours_is_replaced() -> None:
    said = read_launch(ended(exitcode=1, at=5.0), NOW_S)
    assert isinstance(said, Launch)
    assert NOW_S == said.at


def test_a_thousand_ranks_that_end_at_once_are_all_heard_beside_steps(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with_steps = StepReporter(rank=0, job="j", path=str(path))
    agent = StepSocket(path, ManualClock(NOW_S))
    heard: list[Launch] = []
    steps = 0
    to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    to.setblocking(False)
    waiting = [ended(exitcode=1, rank=rank, stderr=USER * 20) for rank in range(1_000)]
    while waiting or len(heard) < 1_000:
        try:  # the wrapper waits a second where the agent's queue is full
            while waiting:
                to.sendto(waiting[-1], str(path))
                waiting.pop()
        except BlockingIOError:
            pass
        with_steps.report(len(heard))
        for one in agent.poll():
            assert not isinstance(one, Rejected), one
            if isinstance(one, Launch):
                heard.append(one)
            else:
                steps += 1
    assert (set(range(1_000)), True) == ({one.rank for one in heard}, steps > 0)
    to.close()
    with_steps.close()
    agent.close()


@pytest.mark.parametrize(
    ("more", "role", "kind"),
    [
        ({"exitcode": 1, "stderr": USER}, "fault", "user_error"),
        ({"exitcode": 1, "stderr": NCCL}, "evidence", "job_hang"),
        ({"signal": "SIGKILL"}, "evidence", "job_hang"),
        ({"exitcode": 1, "stderr": ["RuntimeError: CUDA error: uncorrectable ECC error"]}, "fault",
         "gpu_memory"),
    ],
)  # fmt: skip
def test_what_detectors_make_of_it(more: dict[str, Any], role: str, kind: str) -> None:
    """Only the user's own error and broken memory are faults; whoever is killed accuses nobody."""
    seen = process(event(**more), "j1")
    assert (role, kind, "n1", False) == (seen.role, seen.kind, seen.node, seen.certain)
