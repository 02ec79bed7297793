"""The real action service over rails that allow everything and a world that is a file.

    python -m tests.kafka.killed_act ACT POINT WORLD --config FILE

ACT    kill (SIGKILL to itself), stop (SIGSTOP to itself) or none
POINT  decision, intent, act or outcome, .before or .after; the first time only
WORLD  each call of the executor appends "command pid" to it; "settings": the executor that the
       settings name carries commands out instead
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actions.api import Api
from actions.desk import Desk
from actions.metrics import ActMetrics
from actions.service import observing, outcome
from nodewarden.acting import Acting
from nodewarden.clock import SystemClock
from nodewarden.executing import executor
from nodewarden.service_log import service_log
from nodewarden.serving import serve_metrics, stop_on_signals
from nodewarden.session import Session
from telemetry.actions import Command, Decision, Outcome, Preconditions, RailContext
from telemetry.errors import NodewardenError
from telemetry.findings import Incident, Verdict
from telemetry.settings import RailSettings

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class FileWorld:
    """An Executor whose doing stands in a file, where a later instance can read it back."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def observe(self, targets: Sequence[str], job: str = "") -> Preconditions:
        """Nothing of them is known."""
        return Preconditions()

    def achieved(self, command: Command, now: Preconditions) -> bool | None:
        """Whether somebody did it."""
        return self._file.exists() and command.id in self._file.read_text()

    def execute(self, command: Command) -> Outcome:
        """Do it."""
        with self._file.open("a") as stream:
            stream.write(f"{command.id} {os.getpid()}\n")
        return outcome(command, "done", "written", 0.0)


def allowing(
    verdict: Verdict, incident: Incident, context: RailContext, settings: RailSettings, now_s: float
) -> Decision:
    """What acts is approved at once; where the incident says so it waits for a person."""
    made = observing(verdict, incident, context, settings, now_s)
    if verdict.action == "none":
        return made
    waits = incident.job == "ask"
    return msgspec.structs.replace(made, state="waiting" if waits else "approved", mode="auto")


def main(arguments: list[str]) -> int:
    """Run until SIGTERM, or until the point."""
    act, point, world, _, config = arguments
    service_log()
    configuration = Session(os.environ).configured(Path(config), None)
    done = False

    def at(name: str) -> None:
        nonlocal done
        if name == point and not done and act in SIGNALS:
            done = True
            os.kill(os.getpid(), SIGNALS[act])

    clock, metrics, desk = SystemClock(), ActMetrics(), Desk()
    settings = configuration.act
    does = executor(settings, clock) if world == "settings" else FileWorld(Path(world))
    acting = Acting(configuration, does, desk, clock, metrics, decide=allowing, point=at)
    with (
        serve_metrics(metrics.registry, settings.metrics_address, "act.metrics_address"),
        Api(settings, desk, clock.time_s, metrics),
        stop_on_signals() as stop,
    ):
        try:
            acting.run(stop)
        except NodewardenError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
