"""What training code imports to tell the node agent of its steps. Standard library only.

    from collectors.step_reporter import StepReporter

    reporter = StepReporter(rank=rank, job=job)
    ...
    reporter.report(step, step_time_s=1.9, compute_time_s=1.4, loss=2.31)

`report` never waits and never raises: where no agent listens, or it does not keep up, the step is
dropped and counted in `reporter.dropped`. Copy this file where you cannot install the package.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time

SOCKET_PATH = "/run/nodewarden/steps.sock"
SOCKET_VARIABLE = "NODEWARDEN_STEP_SOCKET"
BYTES_MAX = 4096
OPEN_AGAIN_S = 5.0
KINDS = ("train", "evaluation", "checkpoint", "warmup", "first")


class StepReporter:
    """Sends one datagram a step to the agent of this node; one object a rank.

    sent      datagrams handed over
    dropped   steps that nobody took, or that were no steps
    """

    def __init__(self, rank: int, job: str = "", path: str | None = None) -> None:
        self._path = path or os.environ.get(SOCKET_VARIABLE) or SOCKET_PATH
        self._rank = int(rank)
        self._job = job or os.environ.get("SLURM_JOB_ID", "")
        self._socket: socket.socket | None = None
        self._again_s = -math.inf
        self.sent = 0
        self.dropped = 0

    def report(
        self, step: int, step_time_s: float | None = None,
        compute_time_s: float | None = None, loss: float | None = None,
        grad_norm: float | None = None, tokens: float | None = None, kind: str = "train",
    ) -> bool:  # fmt: skip
        """A step ended just now; True where the agent got it. Values of None are not known."""
        try:
            data = self._datagram(
                step, kind,
                {"step_time_s": step_time_s, "compute_time_s": compute_time_s, "loss": loss,
                 "grad_norm": grad_norm, "tokens": tokens},
            )  # fmt: skip
        except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor of many elements
            data = b""
        if data and len(data) <= BYTES_MAX and self._send(data):
            self.sent += 1
            return True
        self.dropped += 1
        return False

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _datagram(self, step: int, kind: str, values: dict[str, float | None]) -> bytes:
        said: dict[str, object] = {
            "job": self._job, "rank": self._rank, "step": int(step),
            "kind": kind if kind in KINDS else "unknown", "at": time.time(),
        }  # fmt: skip
        nonfinite = []
        for name, value in values.items():
            if value is None:
                continue
            number = float(value)  # also a tensor of one element
            if math.isfinite(number):
                said[name] = number
            else:
                nonfinite.append(name)
        if nonfinite:
            said["nonfinite"] = nonfinite
        return json.dumps(said).encode()

    def _send(self, data: bytes) -> bool:
        try:
            if self._socket is None:
                if time.monotonic() < self._again_s:  # nobody listened a moment ago
                    return False
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(data, socket.MSG_DONTWAIT, self._path)
        except BlockingIOError:  # the agent does not keep up
            return False
        except OSError:
            self.close()
            self._again_s = time.monotonic() + OPEN_AGAIN_S
            return False
        return True
