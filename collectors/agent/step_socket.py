"""Receives the datagrams of `StepReporter` and `nodewarden run`.

Anybody on the node may send; nothing is believed.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from collectors.agent import launches
from collectors.agent.launches import Launch
from collectors.agent.steps import StepRow
from telemetry.codec import AT_MAX_S, name_fault, rejected
from telemetry.errors import SettingsError
from telemetry.ports import Clock
from telemetry.records import Rejected, StepKind

BYTES_MAX = 4_096
DATAGRAMS_MAX = 512  # of one poll: a flood must not starve the other sources
BUFFER_BYTES = 1 << 20
AHEAD_S = 5.0
BEHIND_S = 60.0
PATH_MAX = 100  # the kernel takes 107 bytes
PLACE = "steps socket"

Name = Annotated[str, Meta(max_length=253)]
NotNegative = Annotated[float, Meta(ge=0.0, le=1e15)]
Value = Annotated[float, Meta(ge=-1e300, le=1e300)]
Words = Annotated[list[Literal["loss", "grad_norm", "step_time_s", "compute_time_s", "tokens"]],
                  Meta(max_length=8)]  # fmt: skip


class Datagram(msgspec.Struct, frozen=True):
    """One step of one rank, as it is sent."""

    rank: Annotated[int, Meta(ge=0, lt=10_000_000)]
    step: Annotated[int, Meta(ge=0, lt=2**53)]
    at: Annotated[float, Meta(ge=0.0, lt=AT_MAX_S)]
    job: Name = ""
    kind: StepKind = "train"
    step_time_s: NotNegative | None = None
    compute_time_s: NotNegative | None = None
    loss: Value | None = None
    grad_norm: Value | None = None
    tokens: NotNegative | None = None
    nonfinite: Words = []


_DECODER = msgspec.json.Decoder(Datagram)


class StepSocket:
    """The agent's end. Several agents cannot share one path: the newest takes it over."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises SettingsError where the path cannot be had."""
        self._path, self._clock = path, clock
        if len(os.fsencode(path)) > PATH_MAX:
            raise SettingsError(f"collect.step_socket: {path} is longer than {PATH_MAX} bytes")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _make_room(path)
            self.socket.bind(str(path))
            path.chmod(0o666)  # training runs under its users' names
        except OSError as error:
            self.socket.close()
            raise SettingsError(
                f"{path}: {error.strerror}; collect.step_socket must name a place where we may"
                ' make a socket, or be ""'
            ) from error
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)

    def poll(self) -> Iterator[StepRow | Launch | Rejected]:
        """What was sent since; never waits."""
        for _ in range(DATAGRAMS_MAX):
            try:
                data = self.socket.recv(launches.BYTES_MAX + 1)
            except (BlockingIOError, InterruptedError):
                return
            read = launches.read_launch if data.startswith(launches.MARK) else read_datagram
            yield read(data, self._clock.time_s())

    def close(self) -> None:
        """Stop listening; senders see at once that nobody is there."""
        self.socket.close()
        self._path.unlink(missing_ok=True)


def read_datagram(data: bytes, now_s: float) -> StepRow | Rejected:
    """One datagram, or why it is none. A time far from ours is replaced: the node has one clock."""
    if len(data) > BYTES_MAX:
        return rejected(f"more than {BYTES_MAX} bytes", data, PLACE)
    try:
        said = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return rejected(f"no step: {error}", data, PLACE)
    fault = name_fault("job", said.job)
    if fault is not None:
        return rejected(fault, data, PLACE)
    bad = tuple(name for name in ("loss", "grad_norm") if name in said.nonfinite)
    sane = now_s - BEHIND_S <= said.at <= now_s + AHEAD_S
    return StepRow(
        job=said.job, rank=said.rank, step=said.step, kind=said.kind,
        at_s=said.at if sane else now_s,
        step_time_s=said.step_time_s, compute_time_s=said.compute_time_s,
        loss=None if "loss" in bad else said.loss,
        grad_norm=None if "grad_norm" in bad else said.grad_norm,
        tokens=said.tokens, nonfinite=bad,
    )  # fmt: skip


def _make_room(path: Path) -> None:
    """Remove the socket that an agent before us left; never anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(17, "something else than a socket stands there")
    path.unlink()
