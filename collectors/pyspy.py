"""py-spy dumps: text of every generation, JSON, and lists of top frames grouped by node.

Of one process all threads count: where the main thread is idle, the collective may hang in one
without a name. A thread without frames is legal; main threads that stand above one list of frames
share it, since a process has one main thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from collectors import faulthandler
from collectors.files import lines
from collectors.json_values import values, whole

LINE_BYTES_MAX = 16_384
FRAMES_MAX = 512
THREADS_MAX = 512  # that share one list of frames
_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}m")

_PROCESS = re.compile(r"(?P<parent>Parent )?Process (?P<pid>\d{1,10}): (?P<command>.{0,4000})")
_OLD_PROCESS = re.compile(
    r"Stack dump for \S{1,64} {1,16}(?P<pid>\d{1,10})(?: {1,16}\S{1,40}){8} {1,16}"
    r"(?P<command>.{1,4000})"
)
_PYTHON = re.compile(r"Python v(?P<version>[\d.]{1,20})")
_THREAD = re.compile(
    r"Thread (?P<id>0x[0-9A-Fa-f]{1,16}|\d{1,20})(?:/(?P<os>\d{1,10}))?"
    r"(?: \((?P<state>[a-z+]{1,20})\))?(?:: \"(?P<name>[^\"]{0,200})\")?\s{0,4}$"
)
_FRAME = re.compile(r"[ \t]{1,8}(?P<frame>\S.{0,2000} \([^()]{1,1000}\))\s{0,4}$")
_NODE = re.compile(
    r"(?:trace-|Node (?=\d))?(?P<node>(?<=Node )\d{1,7}|[A-Za-z][\w.-]{0,60}\d):?\s{0,4}$"
)
_FILE = re.compile(r"trace[-_](?P<node>[\w.-]{1,253}?)\.(?:out|txt|log|json)$")
_TOP = re.compile(r"    (?P<name>\w{1,100})$")

FORMS = (
    ("py-spy dump", 'Thread 42 (idle): "MainThread"\\n    wait (threading.py:324)',
     "huggingface/accelerate#3104"),
    ("py-spy dump, old", "Thread 0x7F4AA36D9700 (active)\\n\\t main_loop (ray/worker.py:1005)",
     "ray-project/ray#3187"),
    ("py-spy dump --json", '[{"pid": 12, "thread_name": "MainThread", "frames": []}]',
     "field names from py-spy's source; no real file"),
    ("faulthandler", faulthandler.EXAMPLE, "CPython's faulthandler"),
    ("top frames by node", "trace-node-iam52\\n    wait", "bigscience-workshop/bigscience tr11"),
)  # fmt: skip
"""Name, example and source of each form that is read."""

# What a process is for, by its command line; the first that fits.
ROLES = (
    ("data_worker", ("pt_data_worker", "dataloader")),
    ("tracker", ("resource_tracker", "semaphore_tracker")),
    ("compiler", ("compile_worker",)),
    ("launcher", ("torchrun", "torch.distributed.run", "torch.distributed.launch",
                  "accelerate launch", "deepspeed ", "srun ", "mpirun")),
    ("actor", ("ray::", "ray_worker", "default_worker.py")),
)  # fmt: skip


_WORKER = "_worker_loop (torch/utils/data"


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int | None = None
    command: str | None = None
    parent: int | None = None
    python: str | None = None


@dataclass(slots=True)
class _Thread:
    id: str
    os_id: int | None
    state: str | None
    name: str | None
    frames: list[str] = field(default_factory=list)


def read_stacks(file: str, pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """One object "stack" a thread, its frames innermost first."""
    source = iter(pieces)
    first = next(source, b"")
    if first.lstrip()[:1] in (b"[", b"{") and b'"frames"' in first:
        found = _of_json(whole(_chain(first, source)))
    elif faulthandler.is_dump(first):
        texts = lines(_chain(first, source), LINE_BYTES_MAX)
        found = faulthandler.read_faulthandler(
            text.decode("utf-8", "replace").rstrip("\r") for text in texts
        )
    else:
        node = _FILE.search(file)
        found = Dump(node["node"] if node is not None else None).read(
            lines(_chain(first, source), LINE_BYTES_MAX)
        )
    for one in found:
        yield {"file": file, **one}


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def role(command: str | None, frames: list[str]) -> str | None:
    """What a process does, by its frames (a forked child has its parent's command line) or by its
    command line; "trainer" where nothing else fits, None where nothing is known."""
    if any(_WORKER in frame for frame in frames):
        return "data_worker"
    if command is None:
        return None
    words = command.lower()
    return next((name for name, signs in ROLES if any(sign in words for sign in signs)), "trainer")


class Dump:
    """One file of text; `node` is where it was taken, where the file's name says so."""

    def __init__(self, node: str | None = None) -> None:
        self._process = _Process()
        self._threads: list[_Thread] = []
        self._node = self._file_node = node
        self._place = 0  # within the node's list of top frames
        self._lists = False

    def read(self, source: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        """The threads of all processes."""
        for line in source:
            text = line.decode("utf-8", "replace").rstrip("\r\n\x00")
            yield from self._line(_ANSI.sub("", text) if "\x1b" in text else text)
        yield from self._close()

    def _line(self, text: str) -> Iterator[dict[str, Any]]:
        thread = _THREAD.match(text)
        if thread is not None:
            yield from self._thread(thread)
            return
        frame = _FRAME.match(text)
        if frame is not None and self._threads:
            if len(self._threads[-1].frames) < FRAMES_MAX:
                self._threads[-1].frames.append(frame["frame"])
            return
        process = _PROCESS.match(text) or _OLD_PROCESS.match(text)
        if process is not None:
            yield from self._begin(process)
            return
        version = _PYTHON.match(text)
        if version is not None:
            self._process = replace(self._process, python=version["version"])
            return
        yield from self._of_node(text)

    def _begin(self, found: re.Match[str]) -> Iterator[dict[str, Any]]:
        pid = int(found["pid"])
        if found.re is _PROCESS and found["parent"] is not None:
            self._process = replace(self._process, parent=pid)
            return
        yield from self._close()
        self._process = _Process(pid, found["command"].strip())
        self._node = self._file_node

    def _thread(self, found: re.Match[str]) -> Iterator[dict[str, Any]]:
        thread = _Thread(
            found["id"], int(found["os"]) if found["os"] is not None else None, found["state"],
            found["name"],
        )  # fmt: skip
        shares = self._threads and not self._threads[-1].frames
        shares = shares and thread.name == self._threads[-1].name == "MainThread"
        if not shares or len(self._threads) >= THREADS_MAX:
            yield from self._close()
        self._threads.append(thread)

    def _close(self) -> Iterator[dict[str, Any]]:
        threads, self._threads = self._threads, []
        for thread in threads:
            yield self._stack(thread, threads[-1].frames)

    def _stack(self, thread: _Thread, frames: list[str]) -> dict[str, Any]:
        process, pid = self._process, self._process.pid
        if pid is None and thread.name == "MainThread" and thread.id.isdecimal():
            pid = int(thread.id)  # Linux names a process by its main thread
        return {
            "type": "stack", "node": self._node, "pid": pid, "process": process.command,
            "role": role(process.command, frames), "parent_pid": process.parent,
            "python": process.python, "thread": thread.id, "os_thread": thread.os_id,
            "name": thread.name, "state": thread.state,
            "top": frames[0].partition(" (")[0] if frames else None, "frames": frames,
        }  # fmt: skip

    def _of_node(self, text: str) -> Iterator[dict[str, Any]]:
        """Lists of top frames: a node's name, then one frame a process."""
        node = _NODE.match(text)
        if node is not None:
            yield from self._close()
            self._node, self._place, self._process = node["node"], 0, _Process()
            self._lists = True
            return
        top = _TOP.match(text)
        if top is None:
            self._lists = self._lists and bool(text.strip())
            return
        if self._node is not None and self._lists:
            yield {"type": "top_frame", "node": self._node, "place": self._place,
                   "top": top["name"]}  # fmt: skip
            self._place += 1


def _of_json(data: bytes | None) -> Iterator[dict[str, Any]]:
    if data is None:
        yield {"type": "rejected", "reason": "file too long", "text": ""}
        return
    for value, broken in values(data):
        if broken:
            yield {"type": "rejected", "reason": "broken JSON", "text": broken[:4_096]}
        for trace in value if isinstance(value, list) else [value] if value is not None else []:
            if isinstance(trace, dict) and isinstance(trace.get("frames"), list):
                yield _of_trace(trace)
            elif trace is not None:
                yield {"type": "rejected", "reason": "thread without frames",
                       "text": str(trace)[:4_096]}  # fmt: skip


def _of_trace(trace: dict[str, Any]) -> dict[str, Any]:
    info = trace.get("process_info")
    info = info if isinstance(info, dict) else {}
    command = info.get("command_line")
    frames = [_frame(frame) for frame in trace["frames"][:FRAMES_MAX] if isinstance(frame, dict)]
    states = {(True, True): "active+gil", (True, False): "active"}
    gil = trace.get("owns_gil") is True
    parent = info.get("parent")
    return {
        "type": "stack", "node": None, "pid": _whole(trace.get("pid", info.get("pid"))),
        "process": command[:4_000] if isinstance(command, str) else None,
        "role": role(command if isinstance(command, str) else None, frames),
        "parent_pid": _whole(parent.get("pid") if isinstance(parent, dict) else parent),
        "python": None, "thread": str(trace.get("thread_id"))[:40],
        "os_thread": _whole(trace.get("os_thread_id")),
        "name": trace["thread_name"][:200] if isinstance(trace.get("thread_name"), str) else None,
        "state": states.get((trace.get("active") is True, gil), "idle"),
        "top": frames[0].partition(" (")[0] if frames else None, "frames": frames,
    }  # fmt: skip


def _frame(frame: dict[str, Any]) -> str:
    place = frame.get("short_filename") or frame.get("filename") or "?"
    line = frame.get("line")
    where = f"{place}:{line}" if isinstance(line, int) and line else f"{place}"
    return f"{str(frame.get('name', '?'))[:300]} ({where[:1_000]})"


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
