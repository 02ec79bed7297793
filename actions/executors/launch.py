"""Restarts within the allocation, by the launcher of the job (`nodewarden launch`).

The order is a file in the job's directory, the signal that wakes the launcher goes through the
scheduler; what came of it is read in the launcher's status. A job that was not started by a
launcher, or cannot be restarted so, is "refused" with the reason, and the next mode is tried.

Anybody may be able to write where jobs make their directories: believed is what root, the user whom
the scheduler names as the job's, and the user of this process wrote into a directory of theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from telemetry.actions import Command, Outcome, OutcomeStatus
from telemetry.errors import InputError, SourceUnavailable
from telemetry.launch_files import job_directory, read_file, remove_file, write_file
from telemetry.launching import (
    ORDER_FILE,
    STATUS_FILE,
    VERSIONS_FILE,
    Doing,
    LaunchMode,
    LaunchOrder,
    LaunchResult,
    LaunchStatus,
    Versions,
)
from telemetry.ports import Clock

STEPS, MODES = frozenset(get_args(Doing)), frozenset(get_args(LaunchMode))
LOOK_EVERY_S = 0.1
ANSWER_MAX_S = 15.0  # until the launcher has begun: it looks every 2 s where no signal comes
STATUS_MAX_S = 60.0  # it is said every 10 s; the clocks of two machines differ
Wake = Callable[[str], str]


def by_launcher(command: Command) -> bool:
    """Whether the command is the launcher's matter."""
    return command.step in STEPS and command.mode in MODES


class Left(NamedTuple):
    """What became of versions: in words, and what stood there before; no folder: none were left."""

    said: str
    folder: Path | None = None
    before: Versions | None = None


class Launches:
    """Carries such commands out.

    root   what jobs have as NODEWARDEN_LAUNCH_DIR; None: no job is started by a launcher
    wake   sends SIGUSR1 to the batch step of a job; why that certainly failed, "" else
    wait_s of one call; `execute` is over by then
    """

    def __init__(self, root: Path | None, wake: Wake, clock: Clock, wait_s: float) -> None:
        self._root, self._wake, self._clock, self._wait_s = root, wake, clock, wait_s

    def status(self, job: str, user: int | None) -> LaunchStatus | None:
        """What runs where; None where the job has no launcher.

        user    whose job it is: nobody else is believed but root and who `act` runs as; None:
                nobody knows, and nobody is believed
        raises  SourceUnavailable where nobody can tell
        """
        try:
            return self._believed(job, user)
        except InputError as error:
            raise SourceUnavailable(str(error)) from error

    def fresh_status(self, job: str, user: int | None) -> LaunchStatus | None:
        """The same; None where it is old: nobody says what runs now. Raises SourceUnavailable."""
        status = self.status(job, user)
        return None if status is None or self._objection(status) else status

    def achieved(self, command: Command, user: int | None) -> bool:
        """Whether the launcher did it. Raises SourceUnavailable.

        Not yet where it is at it: to carry the command out once more is to wait for its end, a
        launcher knows the orders that it had. Nor where what is said is to be believed by nobody.
        """
        try:
            status = self._believed(command.job, user)
        except InputError:
            return False
        found = None if status is None else _result(status, command)
        return found is not None and found.state == "done"

    def execute(self, command: Command) -> Outcome:
        """Give the order, and wait for what comes of it. Raises SourceUnavailable."""
        until_s = self._clock.monotonic_s() + self._wait_s
        try:
            status = self._believed(command.job, command.preconditions.job_user)
            why = self._objection(status)
            if why or status is None or self._root is None:
                return self._outcome(command, "refused", why)
            order = _order(command, status)
        except (msgspec.ValidationError, InputError, SourceUnavailable) as error:
            return self._outcome(command, "refused", f"no order of it: {error}")
        folder = job_directory(self._root, command.job)
        try:
            write_file(folder, ORDER_FILE, order)
        except SourceUnavailable as error:
            return self._withdrawn(command, folder, f"; it could not be written: {error}")
        why = self._wake(command.job)
        answer_s = min(ANSWER_MAX_S, self._wait_s / 2.0)
        begun_by_s = min(until_s, self._clock.monotonic_s() + answer_s)
        found = self._awaited(command, begun_by_s, over=False)
        if found is None:
            return self._withdrawn(command, folder, f"; the signal: {why}" if why else "")
        if found.state == "running":
            found = self._awaited(command, until_s, over=True) or found
        if found.state == "running":
            return self._outcome(command, "unknown", f"not over after {self._wait_s:g} s")
        return self._outcome(command, found.state, found.reason)

    def leave_versions(self, command: Command) -> Left:
        """What the job's next launcher is to run, beyond this allocation; what became of that.

        Raises SourceUnavailable.
        """
        if self._root is None:
            return Left("it runs its old versions: act.launch.dir is not set")
        try:
            known = msgspec.convert(dict(command.versions), Versions)
            folder = job_directory(self._root, command.job)
            owners = _believed_users(command.preconditions.job_user)
            before = read_file(folder, VERSIONS_FILE, Versions, owners)
        except (msgspec.ValidationError, InputError) as error:
            return Left(f"it runs its old versions: {error}")
        write_file(folder, VERSIONS_FILE, {**(before or {}), **known})
        said = ", ".join(f"{kind} {version}" for kind, version in sorted(known.items()))
        return Left(f"its launcher will run {said}", folder, before)

    def take_back(self, left: Left) -> str:
        """The versions are as they were before they were left: no run of them came about.

        Raises SourceUnavailable.
        """
        if left.folder is None:
            return left.said
        if left.before is None:
            remove_file(left.folder, VERSIONS_FILE)
        else:
            write_file(left.folder, VERSIONS_FILE, left.before)
        return "its next run has the versions of before"

    def _believed(self, job: str, user: int | None) -> LaunchStatus | None:
        """Raises InputError where what stands there is to be believed by nobody."""
        if self._root is None:
            return None
        try:
            folder = job_directory(self._root, job)
        except InputError:  # no job of a launcher has such a name
            return None
        if user is None and not folder.is_dir():
            return None
        status = read_file(folder, STATUS_FILE, LaunchStatus, _believed_users(user))
        if status is not None and status.job != job:
            raise InputError(f"{folder / STATUS_FILE}: of job {status.job}")
        return status

    def _objection(self, status: LaunchStatus | None) -> str:
        if self._root is None:
            return "act.launch.dir is not set: no job is started by a launcher"
        if status is None:
            return "the job was not started by nodewarden launch"
        age_s = self._clock.time_s() - status.at
        if age_s > STATUS_MAX_S:
            return f"the job's launcher is silent for {age_s:.0f} s"
        return ""

    def _awaited(self, command: Command, until_s: float, *, over: bool) -> LaunchResult | None:
        """The result; with `over` not before it is one."""
        while True:
            status = self.status(command.job, command.preconditions.job_user)
            found = None if status is None else _result(status, command)
            if found is not None and (not over or found.state != "running"):
                return found
            if self._clock.monotonic_s() >= until_s:
                return None
            self._clock.sleep(LOOK_EVERY_S)

    def _withdrawn(self, command: Command, folder: Path, why: str) -> Outcome:
        """Nobody took the order, and nobody will: it is taken back, then looked at once more."""
        remove_file(folder, ORDER_FILE)
        found = self._awaited(command, self._clock.monotonic_s() + 2 * LOOK_EVERY_S, over=False)
        if found is None:
            return self._outcome(command, "refused", f"the launcher did not take the order{why}")
        if found.state == "running":
            return self._outcome(command, "unknown", "begun late, and not over yet")
        return self._outcome(command, found.state, found.reason)

    def _outcome(self, command: Command, status: OutcomeStatus, reason: str) -> Outcome:
        return Outcome(
            command=command.id, at=self._clock.time_s(), status=status, reason=reason
        )  # fmt: skip


def _believed_users(user: int | None) -> frozenset[int]:
    """Raises InputError where nobody knows the job's."""
    if user is None:
        raise InputError("nobody says whose job it is")
    return frozenset({0, os.geteuid(), user})


def _result(status: LaunchStatus, command: Command) -> LaunchResult | None:
    return next((one for one in reversed(status.results) if one.id == command.id), None)


def _order(command: Command, status: LaunchStatus) -> LaunchOrder:
    """Raises ValidationError where a name in it is none, InputError where another run is meant."""
    attempt = command.preconditions.attempt
    if attempt is not None and attempt != status.attempt:
        raise InputError(f"meant is attempt {attempt}, and {status.attempt} runs")
    said = {
        "id": command.id, "job": command.job, "attempt": status.attempt, "do": command.step,
        "mode": command.mode, "nodes": command.targets, "exclude": command.exclude,
        "versions": command.versions, "expires_at": command.expires_at,
    }  # fmt: skip
    return msgspec.convert(said, LaunchOrder)
