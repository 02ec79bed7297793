"""`nodewarden release`: a person gives a node back."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "release", "release", "NODE", "Give NODE back; the service leaves it alone for a while after."
)
