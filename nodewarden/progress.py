"""Progress of long work: a bar on a terminal, nothing on a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Bar:
    """What is being done, how far it is, and the log's own time."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("reading", total=None)

    def read(self, done: int, total: int) -> None:
        """So many of so many bytes were read."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=max(total, 1))

    def doing(self, what: str, total: float | None = None) -> None:
        """A new piece of work begins."""
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, description=what, total=total)

    def folded(self, now_s: float) -> None:
        """The log has reached this time."""
        if self._progress is not None and self._task is not None and now_s > 0.0:
            at = datetime.fromtimestamp(now_s, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
            self._progress.update(self._task, description=f"replaying {at}", total=None)


@contextmanager
def bar() -> Iterator[Bar]:
    """A bar on standard error while the work lasts."""
    if not sys.stderr.isatty():
        yield Bar(None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress)
