"""What a job's earlier processes left on a node: ended ranks that are none, and shared memory.

Standard library only: it runs on the node, before the ranks. Only processes that carry the job's
mark for this node are ended, only shared memory that has the job's name is removed, and nothing of
it that a living process maps or holds open, or that looks like a checkpoint's buffer.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "NODEWARDEN_RANK_OF"  # JOB/ATTEMPT/GENERATION/NODE, in the environment of each rank
KEEP = "NODEWARDEN_KEEP"  # a process with KEEP=1 outlives its generation: a checkpoint's server
SHM = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
SHM_PATTERNS = ("{job}_*", "*_{job}_*", "*.{job}.*")
KEEP_PATTERNS = ("*ckpt*", "*checkpoint*")
ENVIRON_MAX_BYTES = 1_000_000
GONE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """ended: processes; stayed: those that did not go; removed, kept: names of shared memory."""

    ended: int = 0
    stayed: int = 0
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def mark(job: str, attempt: int, generation: int, node: str) -> str:
    """What the environment of a rank says under MARK."""
    return f"{job}/{attempt}/{generation}/{node}"


def clean(
    job: str, node: str, current: str = "", *, shm_patterns: Sequence[str] = SHM_PATTERNS,
    keep_patterns: Sequence[str] = KEEP_PATTERNS, proc: Path = Path("/proc"), shm: Path = SHM,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Cleaned:  # fmt: skip
    """End what earlier generations left, then remove their shared memory.

    current  mark of the processes that are to live
    """
    pidfds = [pidfd for pid in _own(proc) for pidfd in _leftover(pid, proc, job, node, current)]
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    stayed = _wait(pidfds, monotonic_s)
    patterns = [pattern.replace("{job}", job) for pattern in shm_patterns]
    removed, kept = _remove(shm, patterns, keep_patterns, proc)
    return Cleaned(len(pidfds) - stayed, stayed, tuple(removed), tuple(kept))


def _own(proc: Path) -> Iterator[int]:
    """Processes of our user but ourselves and those we descend from."""
    uid, above = os.getuid(), _ancestors(proc)
    for name in filter(str.isdecimal, os.listdir(proc)):
        with contextlib.suppress(OSError):
            if int(name) not in above and os.stat(proc / name).st_uid == uid:
                yield int(name)


def _ancestors(proc: Path) -> set[int]:
    found, pid = set[int](), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            # The name may hold anything, also a bracket: what follows the last one is numbers.
            pid = int((proc / str(pid) / "stat").read_text("utf-8", "replace")
                      .rpartition(")")[2].split()[1])  # fmt: skip
        except (OSError, ValueError, IndexError):
            break
    return found


def _leftover(pid: int, proc: Path, job: str, node: str, current: str) -> Iterator[int]:
    """The process, held so that its number cannot become another's, where it is a leftover."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    if _is_leftover(_environ(proc, pid), job, node, current):
        yield pidfd
    else:
        os.close(pidfd)


def _is_leftover(environ: dict[str, str], job: str, node: str, current: str) -> bool:
    said = environ.get(MARK, "")
    parts = said.split("/")
    mine = len(parts) == 4 and parts[0] == job and parts[3] == node
    return mine and said != current and environ.get(KEEP) != "1"


def _environ(proc: Path, pid: int) -> dict[str, str]:
    try:
        with (proc / str(pid) / "environ").open("rb") as file:
            text = file.read(ENVIRON_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _wait(pidfds: Sequence[int], monotonic_s: Callable[[], float]) -> int:
    """How many are still there after a while."""
    until_s = monotonic_s() + GONE_WITHIN_S
    stayed = 0
    for pidfd in pidfds:
        stayed += not _gone(pidfd, until_s - monotonic_s())
        os.close(pidfd)
    return stayed


def _gone(pidfd: int, patience_s: float) -> bool:
    ready = select.poll()
    ready.register(pidfd, select.POLLIN)
    return bool(ready.poll(max(patience_s, 0.0) * 1_000.0))


def _remove(
    shm: Path, patterns: Sequence[str], keep: Sequence[str], proc: Path
) -> tuple[list[str], list[str]]:
    uid = os.getuid()
    named: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(shm):
            about = os.lstat(shm / name)
            if stat.S_ISREG(about.st_mode) and about.st_uid == uid and _any(name, patterns):
                named[name] = (about.st_dev, about.st_ino)
    if not named:
        return [], []
    used = _used(proc, set(named.values()))
    kept = [name for name, place in named.items() if place in used or _any(name, keep)]
    removed = []
    for name in sorted(named.keys() - set(kept)):
        with contextlib.suppress(OSError):
            (shm / name).unlink()
            removed.append(name)
    return removed, sorted(kept)


def _any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _used(proc: Path, wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of the files that some process has open or mapped."""
    found: set[tuple[int, int]] = set()
    for pid in filter(str.isdecimal, os.listdir(proc)):
        with contextlib.suppress(OSError):
            for file in os.listdir(proc / pid / "fd"):
                with contextlib.suppress(OSError):
                    about = os.stat(proc / pid / "fd" / file)
                    found.add((about.st_dev, about.st_ino))
        with contextlib.suppress(OSError, ValueError, IndexError):
            found |= _mapped(proc / pid / "maps")
    return found & wanted


def _mapped(maps: Path) -> set[tuple[int, int]]:
    """Device and number of what is mapped."""
    found = set()
    for line in maps.read_text("utf-8", "replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            major, minor = words[3].split(":")
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(words[4])))
    return found
