"""The real worker with a part of its work left out: what that part costs is the difference.

    python -m tests.bench.worker_modes MODE --config FILE

MODE    transport: records are counted; decode: and decoded; all: and folded
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from actions.policy import verdict
from nodewarden.service_log import service_log
from nodewarden.session import Session
from nodewarden.streaming import run_worker
from nodewarden.version import version
from streams.live.worker import StreamWorker
from streams.shard import Output, Shard

MODES = ("transport", "decode", "all")


class Transported(Shard):
    """Takes records and does nothing with them."""

    def take(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> list[Output]:
        """Count it."""
        if offset >= self.offset:
            self.offset = offset + 1
        return []


class Decoded(Shard):
    """Decodes records and does nothing with them."""

    def take(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> list[Output]:
        """Decode it."""
        if offset >= self.offset:
            self.offset = offset + 1
            self._decoded(offset, key, value)
        return []


class _Worker(StreamWorker):
    mode = "all"

    async def _load(self, partition: int) -> Shard:
        shard = await super()._load(partition)
        if self.mode != "all":
            shard.__class__ = Transported if self.mode == "transport" else Decoded
        return shard


def main(mode: str, _option: str, config: str) -> None:
    """Work until SIGTERM."""
    assert mode in MODES
    service_log()
    configuration = Session(os.environ).configured(Path(config), None)
    instance = configuration.stream.instance
    worker = _Worker(configuration, verdict, instance, version())
    worker.mode = mode
    run_worker(worker, instance, lambda: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
