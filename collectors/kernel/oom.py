"""The out-of-memory killer: one event for each victim, however many lines tell of it."""

from __future__ import annotations

import re
from dataclasses import replace

from collectors.kernel.events import Form, KernelEvent, Line, Part, plain

_VICTIM = r"(?P<pid>\d{1,10}) \((?P<process>[^\n]{1,64}?)\)(?:[.,: ]|$)"


def _begins(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(kind="oom_begins", line=line)


def _limit(form: Form, found: re.Match[str], line: Line) -> Part:
    return Part(kind="oom_limit", line=line)


def _constraint(form: Form, found: re.Match[str], line: Line) -> KernelEvent:
    """CONSTRAINT_NONE is the whole machine; all others are a limit that somebody set."""
    said = plain(form, found, line)
    return replace(said, class_="system") if found["constraint"] == "NONE" else said


def _row(name: str, marker: bytes, pattern: str, example: str, **changes: object) -> Form:
    base = Form(
        name=name, marker=marker, type="oom", class_="cgroup", pattern=re.compile(pattern),
        make=plain, example=example, source="google/cadvisor oomparser tests (Apache-2.0)",
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


FORMS: tuple[Form, ...] = (
    _row("killer called", b"invoked oom-killer", r"\binvoked oom-killer: ",
         "postgres invoked oom-killer: gfp_mask=0x280da, order=0, oom_score_adj=0", make=_begins),
    _row("killer called for a limit", b"killed as a result of limit",
         r"\bTask in .{1,4096}? killed as a result of limit of ",
         "Task in /docker/container456 killed as a result of limit of /docker/container456",
         make=_limit),
    _row("victim, since Linux 5.0", b"oom-kill:constraint",
         r"oom-kill:constraint=CONSTRAINT_(?P<constraint>\w{1,24}),.{0,2048}?,"
         r"task=(?P<process>[^\n]{1,64}?),pid=(?P<pid>\d{1,10}),uid=\d",
         "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
         "oom_memcg=/docker/c1,task_memcg=/docker/c1,task=postgres,pid=12345,uid=1000",
         make=_constraint),
    _row("victim of a control group", b"out of memory",
         rf"Memory cgroup out of memory: Kill(?:ed)? process {_VICTIM}",
         "Memory cgroup out of memory: Kill process 11499 (badsysprogram) score 1000 or sacrifice"
         " child"),
    _row("victim", b"out of memory",
         rf"Out of memory(?: \([^)\n]{{1,64}}\))?: Kill(?:ed)? process {_VICTIM}",
         "Out of memory: Killed process 22222 (nginx).", class_="system"),
    _row("victim, old or last line", b"killed process",
         rf"Killed process {_VICTIM}", "Killed process 9876 (apache2)", class_="system"),
)  # fmt: skip
