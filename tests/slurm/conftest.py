"""A real Slurm for each test that asks for one.

Where none can be had the tests skip and say why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Slurm, SlurmFailed, SlurmMissing

START_TRIES = 3
NODES = 4


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """Four idle nodes, node1 to node4 (2 s)."""
    yield from cluster_of()


@pytest.fixture(scope="module")
def shared_slurm() -> Iterator[Slurm]:
    """One for all tests of a file, which leave it as they find it: see `Slurm.calm`."""
    yield from cluster_of()


def cluster_of(nodes: int = NODES) -> Iterator[Slurm]:
    """A cluster of so many idle nodes, for a fixture."""
    # Not below pytest's own: with a worker's part in it, Slurm's sockets would have too long names.
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory:
        cluster = _started(Path(directory), nodes)
        yield cluster
        cluster.stop()


def _started(directory: Path, nodes: int) -> Slurm:
    """Another process may take a free port before a daemon does, so it is tried again."""
    failures = []
    for attempt in range(START_TRIES):
        cluster = Slurm(directory / f"slurm{attempt}")
        try:
            cluster.start(nodes)
        except SlurmMissing as missing:
            pytest.skip(str(missing))
        except SlurmFailed as failed:
            failures.append(str(failed))
            cluster.stop()
        else:
            return cluster
    pytest.fail("; ".join(failures))
