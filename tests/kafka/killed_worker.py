"""The real worker, which ends, hangs or is suspended at a chosen pass of a named point of its work.

    python -m tests.kafka.killed_worker ACT POINT NUMBER --config FILE

ACT     kill (SIGKILL to itself), sleep (the process hangs there for ever) or stop (SIGSTOP to
        itself: it goes on after a SIGCONT)
POINT   published: outputs are acknowledged, no snapshot yet; chunk: inside a snapshot; marker:
        the snapshot is whole, nothing committed; recovery: a snapshot is loaded
NUMBER  at which pass, counted from 1
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from actions.policy import verdict
from nodewarden.service_log import service_log
from nodewarden.session import Session
from nodewarden.streaming import run_worker
from nodewarden.version import version
from streams.live.worker import StreamWorker
from telemetry.errors import NodewardenError

POINTS = ("published", "chunk", "marker", "recovery")
ACTS = ("kill", "sleep", "stop")
FOR_EVER_S = 3_600.0
STATUS = 3


class Fate:
    """The worker's probe."""

    def __init__(self, act: str, point: str, number: int) -> None:
        assert act in ACTS
        assert point in POINTS
        self._act, self._point, self._left = act, point, number

    def __call__(self, point: str) -> None:
        """The work passes a point."""
        self._left -= point == self._point
        if point != self._point or self._left != 0:
            return
        if self._act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._act == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        time.sleep(FOR_EVER_S)


def main(act: str, point: str, number: str, _option: str, config: str) -> int:
    """The exit status of `nodewarden stream`."""
    service_log()
    try:
        configuration = Session(os.environ).configured(Path(config), None)
        instance = configuration.stream.instance
        fate = Fate(act, point, int(number))
        worker = StreamWorker(configuration, verdict, instance, version(), fate)
        failed = run_worker(worker, instance, lambda: None)
    except NodewardenError as error:
        failed = str(error)
    if failed:
        sys.stderr.write(f"{failed}\n")
    return STATUS if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
