"""One kind of object of a cluster, kept up to date: a listing, then a watch's events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from collectors.flat import dict_of, text_of
from telemetry.errors import ListingIncomplete

T = TypeVar("T")
Object = dict[str, Any]
Read = Callable[[Object], T | None]

OBJECTS_MAX = 500_000


class Mirror(Generic[T]):
    """What `read` makes of each object; it gives None where an object is not of interest.

    version   of the collection: from there a watch goes on
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read
        self._held: dict[str, T] = {}
        self.version = ""

    def replace(self, objects: Iterable[Object], version: str) -> None:
        """A whole listing: what it lacks is gone. Raises ListingIncomplete, and holds then what
        it held before."""
        held: dict[str, T] = {}
        for one in objects:
            key, seen = _key(one), self._read(one)
            if seen is not None:
                held[key] = seen
            if len(held) > OBJECTS_MAX:
                raise ListingIncomplete(f"more than {OBJECTS_MAX} objects")
        if not version:
            raise ListingIncomplete("the listing names no resourceVersion")
        self._held, self.version = held, version

    def apply(self, kind: str, one: Object) -> None:
        """One event of a watch. Raises ListingIncomplete where it cannot be read: a gap."""
        version = text_of(dict_of(one.get("metadata")).get("resourceVersion"), 64)
        if not version:
            raise ListingIncomplete(f"a {kind.lower()[:20]} event without a resourceVersion")
        if kind == "DELETED":
            self._held.pop(_key(one), None)
        elif kind in ("ADDED", "MODIFIED"):
            key, seen = _key(one), self._read(one)
            if seen is None:
                self._held.pop(key, None)
            else:
                self._held[key] = seen
        elif kind != "BOOKMARK":
            raise ListingIncomplete(f"a watch event of an unknown kind, {kind[:40]!r}")
        self.version = version

    def objects(self) -> list[T]:
        """Everything, by namespace and name."""
        return [held for _, held in sorted(self._held.items())]


def _key(one: Object) -> str:
    meta = dict_of(one.get("metadata"))
    name = text_of(meta.get("name"))
    if not name:
        raise ListingIncomplete("an object without a name")
    return f"{text_of(meta.get('namespace'))}/{name}"
