"""A settings file that changes under a service: a broken one is said and not taken."""

from __future__ import annotations

import logging
from pathlib import Path

from nodewarden.session import Session
from telemetry.errors import NodewardenError
from telemetry.settings import Configuration

LOG = logging.getLogger("nodewarden.settings")


class ChangedSettings:
    """Called again and again: the new settings where the file changed since, else None."""

    def __init__(self, session: Session, config: Path | None, broker: str | None) -> None:
        self._session, self._config, self._broker = session, config, broker
        self._seen = self._stamp()

    def __call__(self) -> Configuration | None:
        """Look at the file; it is read only where its time or its size is another."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            changed = self._session.configured(self._config, self._broker)
        except NodewardenError as error:
            LOG.error("the changed settings are not taken: %s", error)
            return None
        LOG.info("settings changed")
        return changed

    def _stamp(self) -> tuple[int, int] | None:
        file = self._session.settings_path(self._config)
        try:
            found = None if file is None else file.stat()
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)
