"""`nodewarden pause`: the kill switch."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "pause", "pause", "", "Stop everything that acts, at once: nothing is done until resume."
)
