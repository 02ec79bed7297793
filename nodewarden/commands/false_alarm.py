"""`nodewarden false-alarm`: the incident is none."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "false-alarm",
    "false_alarm",
    "ID",
    "Say that the incident ID is a false alarm; the engine is told.",
)
