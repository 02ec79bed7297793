"""What a person who orders something should know at once: that nothing comes of it as things stand,
or that what was named is not known. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.actions import Verb, Where

DRY_RUN = "dry run: nothing is done to nodes or jobs (act.dry_run)"
PAUSED = "paused: nothing is done to nodes or jobs before `nodewarden resume`"
_EXPIRING: frozenset[Verb] = frozenset({"approve", "isolate", "release"})
_ORDERS: frozenset[Verb] = _EXPIRING | {"resume", "false_alarm", "update", "rollback"}


def notice(
    verb: Verb, *, dry_run: bool, paused: bool, command_s: float, running: bool = False
) -> str:
    """ "" where what was ordered is done.

    paused     as the service stands after the request
    command_s  so long an approved decision may be carried out
    running    of an update: it runs already, and nothing is ordered
    """
    if verb not in _ORDERS or running:
        return ""
    if dry_run:
        return DRY_RUN
    if not paused:
        return ""
    return f"{PAUSED}, and after {command_s:g} s not at all" if verb in _EXPIRING else PAUSED


def stranger(verb: Verb, target: str, places: Mapping[str, Where]) -> str:
    """That the inventory, where there is one, knows no such node, or no such job on any.

    It may lag, and a job may wait: that is a warning and refuses nothing.
    """
    if not places:
        return ""
    if verb in ("isolate", "release") and target not in places:
        return f"the inventory knows no node {target}"
    ordered = verb in ("update", "rollback")
    if ordered and all(place.job != target for place in places.values()):
        return f"the inventory knows no node that job {target} runs on"
    return ""
