"""Fixtures for tests against a real Prometheus; they skip without one, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prometheus.server import Prometheus, PrometheusMissing


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """One of the test's own, not started: `scrape` does."""
    try:
        server = Prometheus(tmp_path / "prometheus")
    except PrometheusMissing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()
