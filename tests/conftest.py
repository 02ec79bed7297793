"""What holds for all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nodewarden.service_log import OneLine


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A service that a test starts in this process logs to that test's standard error alone."""
    root, ours = logging.getLogger(), logging.getLogger("nodewarden")
    levels = root.level, ours.level
    yield
    for handler in list(root.handlers):
        if isinstance(handler.formatter, OneLine):
            root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
