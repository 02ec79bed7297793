"""Lists one kind of object, then watches it; lists anew where a watch had a gap. A thread each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from collectors.inventory.kube_mirror import Mirror, Object, Read
from collectors.inventory.metrics import InventoryMetrics
from telemetry.errors import ListingIncomplete, SourceUnavailable

T = TypeVar("T")
RETRY_MIN_S, RETRY_MAX_S = 0.5, 15.0
PAGES_MAX = 10_000
CLOSE_TRIES = 50  # a tenth of a second each

_log = logging.getLogger("nodewarden.inventory")


class VersionGone(SourceUnavailable):
    """The API server no longer knows what came after that resourceVersion: HTTP 410."""


class Collection(Protocol):
    """One kind of object of the API.

    Raises SourceUnavailable, VersionGone.
    """

    name: str

    def page(self, go_on: str) -> dict[str, Any]:
        """A page of a listing; `go_on` is the `continue` of the page before, "" at first."""
        ...

    def events(self, version: str, opened: Callable[[], None]) -> Iterator[tuple[str, Object]]:
        """Kind and object of what happened after `version`, until the server ends the watch.

        opened  called when the server accepted it: there may be no event for long
        """
        ...

    def close(self) -> None:
        """End a watch that runs in another thread."""
        ...


class Watched(Generic[T]):
    """A mirror, and the thread that keeps it."""

    def __init__(self, collection: Collection, read: Read[T], metrics: InventoryMetrics) -> None:
        self._collection = collection
        self._mirror = Mirror(read)
        self._metrics = metrics
        self._lock = threading.Lock()
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._fault: SourceUnavailable | None = SourceUnavailable(
            f"{collection.name}: not listed yet"
        )
        self._thread = threading.Thread(
            target=self._run, name=f"watch {collection.name}", daemon=True
        )

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the thread: one that still runs when Python ends may abort the process."""
        self._stop.set()
        for _ in range(CLOSE_TRIES):
            if self._thread.ident is None or not self._thread.is_alive():
                return
            self._collection.close()  # again: a watch may just have been opened
            self._thread.join(0.1)

    def wait(self, timeout_s: float) -> None:
        """Until the first listing came or failed, at most `timeout_s`."""
        self._tried.wait(timeout_s)

    def objects(self) -> list[T]:
        """What there is now. Raises SourceUnavailable while the watch does not stand."""
        with self._lock:
            if self._fault is not None:
                # A new object each time: an exception that is raised twice grows its traceback.
                raise type(self._fault)(str(self._fault))
            return self._mirror.objects()

    def _run(self) -> None:
        pause_s = RETRY_MIN_S
        is_listed = False
        while not self._stop.is_set():
            try:
                if not is_listed:
                    self._list()
                    is_listed = True
                self._watch()
                pause_s = RETRY_MIN_S
                continue
            except (VersionGone, ListingIncomplete) as error:
                if is_listed:
                    self._metrics.relists.inc()
                    _log.warning("watch_gap of=%s error=%s", self._collection.name, error)
                is_listed = False
                self._fail(error)
            except SourceUnavailable as error:
                self._fail(error)
            self._stop.wait(pause_s)
            pause_s = min(2.0 * pause_s, RETRY_MAX_S)

    def _list(self) -> None:
        """All pages; the mirror keeps what it held where one of them fails."""
        objects: list[Object] = []
        go_on = version = ""
        for _ in range(PAGES_MAX):
            page = self._collection.page(go_on)
            items, meta = page.get("items"), page.get("metadata")
            if not isinstance(meta, dict) or not isinstance(items, list | None):
                raise ListingIncomplete(f"{self._collection.name}: the answer is no list")
            objects += [one for one in items or [] if isinstance(one, dict)]
            version = version or str(meta.get("resourceVersion") or "")
            go_on = str(meta.get("continue") or "")
            if not go_on:
                break
        with self._lock:
            self._mirror.replace(objects, version)
            self._fault = None
        self._tried.set()

    def _watch(self) -> None:
        for kind, one in self._collection.events(self._mirror.version, self._well):
            if self._stop.is_set():
                return
            with self._lock:
                self._mirror.apply(kind, one)

    def _well(self) -> None:
        with self._lock:
            self._fault = None

    def _fail(self, error: SourceUnavailable) -> None:
        with self._lock:
            self._fault = error
        self._tried.set()
