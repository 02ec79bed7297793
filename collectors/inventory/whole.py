"""A scheduler's answer, whole or not at all: what it lacks would be taken for gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.flat import Flat
from telemetry.errors import ListingIncomplete


def whole(objects: Iterable[Flat], of: str, asked: str) -> list[Flat]:
    """The nodes or jobs of one answer, out of what `collectors.slurm.read_objects` makes of it.

    of      "nodes" or "jobs"
    asked   the command or URL, for the error
    Raises ListingIncomplete where anything in it cannot be read, it says itself that something is
    wrong, or there is no such list in it.
    """
    found: list[Flat] = []
    ended = False
    for said in objects:
        if said["type"] == "rejected":
            raise ListingIncomplete(f"{asked}: {said['reason']}")
        if said["type"] != "listing":
            found.append(said)
        elif said["of"] == of:
            if not said["complete"]:
                raise ListingIncomplete(f"{asked}: {said['reason']}")
            ended = True
    if not ended:
        raise ListingIncomplete(f"{asked}: the answer holds no list of {of}")
    return found
