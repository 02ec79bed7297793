"""What a person who orders something should know at once: that nothing comes of it as things stand.

Pure.
"""

from __future__ import annotations

from telemetry.actions import Verb

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
