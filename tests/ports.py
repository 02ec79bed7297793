"""Ports for services under test that nobody else gets: no other test process, no later service."""

from __future__ import annotations

import os
import secrets
import socket

TRIES = 300
# Below the range that outgoing connections take theirs from: a client that tries a dead broker's
# port from there again and again may end up connected to itself, and the port is taken.
PORTS = range(20_000, 32_000)

_given: set[int] = set()  # a service that is stopped and started again needs its port still


class NoPorts(Exception):
    """None is free."""


def free_port(count: int = 1) -> int:
    """A port that is free now, and so are those after it, `count` in all. Raises NoPorts."""
    ours = share(PORTS)
    for _ in range(TRIES):
        start = ours.start + secrets.randbelow(len(ours) - count)
        ports = range(start, start + count)
        if _given.isdisjoint(ports) and all(map(is_free, ports)):
            _given.update(ports)
            return start
    raise NoPorts(f"no {count} neighbouring free ports on 127.0.0.1")


def share(of: range) -> range:
    """The part that is this process's own among those that pytest-xdist runs side by side."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = max(len(of) // processes, 1)
    first = number * each % len(of)
    return of[first : first + each]


def is_free(port: int) -> bool:
    """Whether somebody could listen there now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
