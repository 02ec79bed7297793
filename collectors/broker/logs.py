"""kafka-python's own log lines, which say every lost connection many times a second."""

from __future__ import annotations

import logging


def quiet() -> None:
    """Keep them from standard error: what matters of them is in our errors and metrics.

    For commands and services, once at the start. A handler put on the logger "kafka" shows them.
    """
    library = logging.getLogger("kafka")
    library.addHandler(logging.NullHandler())
    library.propagate = False
