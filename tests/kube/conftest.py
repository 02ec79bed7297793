"""A real Kubernetes API server for each test that asks for one.

Where none can be had the tests skip and say why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster import Kube, KubeFailed, KubeMissing

START_TRIES = 3


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    """An empty cluster (4 s)."""
    server = _started(tmp_path)
    yield server
    server.stop()


def _started(directory: Path) -> Kube:
    """Another process may take a free port before the servers do, so it is tried again."""
    failures = []
    for attempt in range(START_TRIES):
        server = Kube(directory / f"kube{attempt}")
        try:
            server.start()
        except KubeMissing as missing:
            pytest.skip(str(missing))
        except KubeFailed as failed:
            failures.append(str(failed))
            server.stop()
        else:
            return server
    pytest.fail("; ".join(failures))
