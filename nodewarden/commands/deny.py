"""`nodewarden deny`: a person forbids what waits."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "deny", "deny", "ID", "Forbid the decision ID, or the one of the incident ID that waits."
)
