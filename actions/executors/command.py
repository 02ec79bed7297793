"""Commands as programs of the site: an argument list with names filled in, and no shell.

At most once: nothing is tried again, and nobody can read back what came of it. A program that does
not end in time may have done its work: that is `unknown`, and a person looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from telemetry.actions import Command, Outcome, OutcomeStatus, Preconditions
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.ports import Clock
from telemetry.settings import ActCommandSettings
from telemetry.tools import Tools

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+\-]{0,252}")  # no option, no list, no blank
FIELDS = ("node", "job", "incident", "code", "config")
SAID_MAX = 200
_FIELD = re.compile(r"\{([a-z_]*)\}")
Came = tuple[OutcomeStatus, str]


class CommandExecutor:
    """An `Executor`."""

    def __init__(self, settings: ActCommandSettings, tools: Tools, clock: Clock) -> None:
        self._settings, self._tools, self._clock = settings, tools, clock

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """Nobody here knows anything of them."""
        return Preconditions(job=job)

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Nobody can tell."""
        return None

    def execute(self, command: Command) -> Outcome:
        """The program, once for each node; of a restart once for the job."""
        status, reason = self._came_of(command)
        return Outcome(command=command.id, at=self._clock.time_s(), status=status, reason=reason)

    def _came_of(self, command: Command) -> Came:
        if command.dry_run:
            return "refused", "it was written for a dry run"
        wrong = next((name for name in _names(command) if not NAME.fullmatch(name)), None)
        if wrong is not None:
            return "refused", f"{wrong[:80]!r} is no name"
        said: list[str] = []
        until_s = self._clock.monotonic_s() + self._settings.timeout_s
        for name, words, node in self._programs(command):
            if not words:
                return "refused", f"act.command.{name} is not set"
            status, reason = self._ran(filled(words, command, node), until_s)
            said.append(f"{node or command.job}: {reason}")
            if status != "done":
                return status, "; ".join(said)
        return "done", "; ".join(said) or "the program of the restart does that"

    def _programs(self, command: Command) -> list[tuple[str, tuple[str, ...], str]]:
        """Which setting, its words, and for which node."""
        settings = self._settings
        if command.step in ("stop", "clean", "replace"):
            whole = settings.restart if command.mode in (None, "requeue") else ()
            return [] if whole else [(f"{command.step} ({command.mode})", (), "")]
        each = [(name, words, node) for name, words, action in (
            ("isolate", settings.isolate, "isolate"), ("release", settings.release, "release"),
        ) if action == _of_nodes(command) for node in command.targets]  # fmt: skip
        if command.step == "restart" or (not command.step and "restart" in command.action):
            each.append(("restart", settings.restart, ""))
        return each or [(command.step or command.action, (), "")]

    def _ran(self, words: Sequence[str], until_s: float) -> Came:
        left_s = until_s - self._clock.monotonic_s()
        if left_s <= 0.0:
            return "failed", "no time is left: not started"
        try:
            ran = self._tools.ran(words, left_s)
        except SourceUnavailable as error:
            # What was never started is certain; whatever else happened to it is not.
            started = not isinstance(error.__cause__, OSError)
            return "unknown" if started else "failed", str(error)
        printed = ran.printed.decode("utf-8", "replace").strip() or ran.said.strip()
        last = printed.splitlines()[-1][:SAID_MAX] if printed else "nothing printed"
        return ("done", last) if ran.status == 0 else ("failed", f"exit {ran.status}: {last}")


def check_commands(settings: ActCommandSettings) -> None:
    """Raises SettingsError where a word has a field that nobody fills in."""
    programs: Mapping[str, tuple[str, ...]] = {
        "isolate": settings.isolate, "release": settings.release, "restart": settings.restart,
    }  # fmt: skip
    if not any(programs.values()):
        raise SettingsError("act.command: none of isolate, release and restart is set")
    for name, words in programs.items():
        for field in _FIELD.findall(" ".join(words)):
            if field not in FIELDS:
                known = ", ".join(f"{{{one}}}" for one in FIELDS)
                raise SettingsError(f"act.command.{name}: {{{field}}} is none of {known}")


def filled(words: Sequence[str], command: Command, node: str) -> list[str]:
    """The words with names in the place of fields, in one pass: a name is never looked at again."""
    values = {
        "node": node, "job": command.job, "incident": command.incident,
        "code": command.versions.get("code", ""), "config": command.versions.get("config", ""),
    }  # fmt: skip
    return [_FIELD.sub(lambda hit: values.get(hit[1], hit[0]), word) for word in words]


def _names(command: Command) -> list[str]:
    said = [*command.targets, command.job, command.incident, *command.versions.values()]
    return [name for name in said if name]


def _of_nodes(command: Command) -> str:
    """What is done to each target."""
    if command.step:
        return {"drain": "isolate", "undrain": "release"}.get(command.step, "")
    if command.action == "release":
        return "release"
    return "isolate" if "isolate" in command.action else ""
