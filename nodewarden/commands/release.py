"""`nodewarden release`: a person gives nodes back."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "release",
    "release",
    "NODES",
    "Give NODES back, n[01-04],n7; the service leaves them alone for a while after.",
    many=True,
)
