"""The process: reads the environment once, runs a command, ends with its exit status."""

from __future__ import annotations

import os
import sys

from nodewarden.cli import run


def main() -> None:
    """Entry point of `nodewarden` and of `python -m nodewarden`."""
    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
