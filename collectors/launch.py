"""Runs a command and tells the node agent how it ended. Standard library only.

Standard input and output are the command's own. What it writes to standard error goes on as it is,
and its last lines are kept for the agent. Where no agent listens, nothing else changes.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from collectors.step_reporter import SOCKET_PATH, SOCKET_VARIABLE

LINES_MAX = 64
STDERR_BYTES_MAX = 16_384
DATAGRAM_BYTES_MAX = 32_768
LINE_MAX = 4_096
PIECE_BYTES = 65_536
END_PATIENCE_S = 1.0  # how long the agent is waited for at the end; at the start it is not
LINGER_S = 1.0  # after the command's end, for what its own children still write
NOT_FOUND, NOT_STARTED = 127, 126  # as shells have it

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_NAMES = ("HUP", "INT", "QUIT", "ABRT", "USR1", "USR2", "ALRM", "TERM", "XCPU", "PWR")
PASSED = frozenset(
    {getattr(signal, f"SIG{name}") for name in _NAMES}
    | set(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
)
_SI_KERNEL = 128
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_LAUNCHERS = ("torchrun", "torch.distributed.", "accelerate", "deepspeed", "mpirun", "mpiexec",
              "srun", "ray")  # fmt: skip
_CONTROLS = re.compile(r"\x1b\[[0-9;?]{0,16}[ -/]?[@-~]|[\x00-\x08\x0b-\x1f\x7f]")

Tell = Callable[[dict[str, object]], bool]


class LastLines:
    """The end of a text, whatever its length."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> None:
        """What comes next."""
        self._data += piece[-STDERR_BYTES_MAX:]
        del self._data[:-STDERR_BYTES_MAX]

    def lines(self) -> list[str]:
        """The last `LINES_MAX`, without colours; of a progress bar what it showed last."""
        text = bytes(self._data).decode("utf-8", "replace")
        kept = [
            _CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n")
        ]
        return [line[:LINE_MAX] for line in kept if line.strip()][-LINES_MAX:]


def run(words: Sequence[str], tell: Tell, about: Mapping[str, object]) -> int:
    """The command's exit code, -N where signal N ended it; 126 or 127 where it does not start.

    about   what is told of the command beside its end: `identity`
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED, signal.SIGCHLD})
    started_at, last = time.time(), LastLines()
    source, sink = (None, None) if not _is_kept() else os.pipe()
    try:
        child = _start(words, sink, before)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
        said = f"{words[0]}: {error.strerror}"
        print(f"nodewarden: {said}", file=sys.stderr)
        tell({"launch": "end", **about, "at": time.time(), "exitcode": code, "stderr": [said]})
        return code
    finally:
        if sink is not None:
            os.close(sink)
    tell({"launch": "start", **about, "at": started_at, "pid": child.pid})
    pump = _Pump(source, last) if source is not None else None
    passed = _pass_signals(child)
    if pump is not None:
        pump.finish()
    tell({
        "launch": "end", **about, "at": time.time(), "pid": child.pid, **_ending(child.returncode),
        **({"passed": signal.Signals(passed).name} if passed in _NAMED else {}),
        "stderr": last.lines(),
    })  # fmt: skip
    return child.returncode


def identity(
    words: Sequence[str], environ: Mapping[str, str], job: str = "", rank: int | None = None
) -> dict[str, object]:
    """Who the command is, as far as its surroundings tell; its arguments are nobody's business.

    Beneath a launcher the scheduler's number is a node's: it names no rank.
    """
    launcher = any(sign in word for word in words[:4] for sign in _LAUNCHERS)
    if rank is None and not launcher:
        rank = next((n for name in _RANKS if (n := _whole(environ.get(name))) is not None), None)
    array_job, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    slurm = f"{array_job}_{task}" if array_job and task else environ.get("SLURM_JOB_ID", "")
    return {"job": job or slurm, "rank": rank, "command": os.path.basename(words[0])[:253]}


def teller(environ: Mapping[str, str]) -> Tell:
    """Sends to the agent's socket; the result is whether the agent got it."""
    path = environ.get(SOCKET_VARIABLE) or SOCKET_PATH

    def tell(message: dict[str, object]) -> bool:
        patience_s = END_PATIENCE_S if message["launch"] == "end" else 0.0
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(patience_s)
                to.sendto(datagram(message), path)
        except OSError:  # nobody listens, or not soon enough
            return False
        return True

    return tell


def datagram(message: Mapping[str, object]) -> bytes:
    """As it is sent: "launch" stands first; of too much text the oldest lines go."""
    said = dict(message)
    while len(data := json.dumps(said, ensure_ascii=False).encode()) > DATAGRAM_BYTES_MAX:
        lines = said["stderr"]
        assert isinstance(lines, list)
        said["stderr"] = lines[1:]
    return data


def end_as(code: int) -> int:
    """End as the command did: by its signal where one ended it, else the exit status."""
    if code >= 0:
        return code
    number = -code
    sys.stdout.flush()
    with contextlib.suppress(ValueError, OSError):
        import resource  # noqa: PLC0415 - only here: no core of ours beside the command's

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # a signal that does not end a process


_NAMED = frozenset(signal.Signals)


def _ending(code: int) -> dict[str, object]:
    if code >= 0:
        return {"exitcode": code}
    return {"signal": signal.Signals(-code).name if -code in _NAMED else f"SIG{-code}"}


def _is_kept() -> bool:
    """A terminal is the command's own: somebody reads there. Nothing is kept of a closed one."""
    try:
        os.fstat(2)
    except OSError:
        return False
    return not os.isatty(2)


def _start(
    words: Sequence[str], sink: int | None, mask: set[signal.Signals] | set[int]
) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        # Whoever kills us means the command, and it could no longer write to its standard error.
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    # No thread runs yet. Whatever else the launcher left open for the command stays open.
    return subprocess.Popen(  # noqa: S603 - running what it is given is what this is for
        list(words), stderr=sink, close_fds=False,
        preexec_fn=prepare,  # noqa: PLW1509
    )  # fmt: skip


def _pass_signals(child: subprocess.Popen[bytes]) -> int | None:
    """Until the command ends; the last signal that was passed on to it."""
    passed = None
    while child.poll() is None:
        found = signal.sigwaitinfo({*PASSED, signal.SIGCHLD})
        # What a terminal sends has reached the command already.
        if found.si_signo == signal.SIGCHLD or found.si_code == _SI_KERNEL:
            continue
        if child.poll() is None:
            passed = found.si_signo
            child.send_signal(passed)
    return passed


class _Pump:
    """What comes out of `source` goes on to standard error, in a thread of its own."""

    def __init__(self, source: int, last: LastLines) -> None:
        self._source, self._last = source, last
        self._holds = False  # data that is not written yet
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """All that the command wrote has gone on; its children get a moment."""
        until_s = time.monotonic() + LINGER_S
        while self._thread.is_alive():
            self._thread.join(0.02)
            if time.monotonic() >= until_s and not self._holds and not self._waits():
                return

    def _run(self) -> None:
        while data := os.read(self._source, PIECE_BYTES):
            self._holds = True
            self._last.feed(data)
            try:
                _write(data)
            except BrokenPipeError:  # the reader has left, which the command has to see
                break
            except OSError:  # a full disk: the command is not to be ended by it
                pass
            self._holds = False
        self._holds = False
        os.close(self._source)

    def _waits(self) -> bool:
        waiting = array.array("i", [0])
        try:
            fcntl.ioctl(self._source, termios.FIONREAD, waiting)
        except OSError:
            return False
        return waiting[0] > 0


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(2, left) :]
        except BlockingIOError:
            select.select([], [2], [])


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 8 else None
