"""`nodewarden approve`: a person allows what waits."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "approve", "approve", "ID", "Allow the decision ID, or the one of the incident ID that waits."
)
