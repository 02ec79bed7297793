"""Log lines of the services: one line each on standard error, bounded, without tracebacks."""

from __future__ import annotations

import logging
import os
import sys
import time

TRACE_VARIABLE = "NODEWARDEN_TRACE"
BURST = 5  # lines of one library in
EVERY_S = 10.0  # so many seconds


class OneLine(logging.Formatter):
    """`2026-01-31T12:00:00Z level name: text`; an exception is its type and its text."""

    def __init__(self, *, trace: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self._trace = trace

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """UTC."""
        return time.strftime(datefmt or "%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))

    def format(self, record: logging.LogRecord) -> str:
        """The record without control characters, so that no log line is made by input."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or self._trace:
            said = super().format(record)
            return said if self._trace else _printable(said)
        plain = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
        return _printable(f"{super().format(plain)} ({type(error).__name__}: {error})")


class FewLines(logging.Filter):
    """Lets a library say a few lines in a while: aiokafka says 100 a second without a broker."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be said; ours always."""
        if record.name.startswith("nodewarden"):
            return True
        library = record.name.partition(".")[0]
        since_s, count = self._said.get(library, (-EVERY_S, 0))
        now_s = time.monotonic()
        if now_s - since_s > EVERY_S:
            since_s, count = now_s, 0
        self._said[library] = (since_s, count + 1)
        return count < BURST


def service_log() -> None:
    """Set up logging for a service: ours from INFO on, libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(trace=os.environ.get(TRACE_VARIABLE) == "1"))
    handler.addFilter(FewLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("nodewarden").setLevel(logging.INFO)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
