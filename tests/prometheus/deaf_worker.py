"""The real worker, whose canaries do not come out while a file exists; all else is as ever.

python -m tests.prometheus.deaf_worker FILE --config FILE
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from detectors.base import Sighting, View
from detectors.canary import Canary
from nodewarden.__main__ import main
from telemetry.records import Event


def make_deaf(file: Path) -> None:
    """Canaries say nothing while `file` exists."""
    hears = Canary.on_event

    def on_event(self: Canary, event: Event, view: View, now_s: float) -> Sequence[Sighting]:
        return () if file.exists() else hears(self, event, view, now_s)

    Canary.on_event = on_event  # type: ignore[method-assign]


if __name__ == "__main__":
    make_deaf(Path(sys.argv[1]))
    sys.argv[1:] = ["stream", *sys.argv[2:]]
    main()
