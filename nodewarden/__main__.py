"""The process: reads the environment once, runs a command, ends with its exit status."""

from __future__ import annotations

import io
import os
import sys

from nodewarden.cli import run


def main() -> None:
    """Entry point of `nodewarden` and of `python -m nodewarden`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # λ and δ on a terminal without them
    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
