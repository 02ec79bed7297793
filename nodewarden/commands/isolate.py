"""`nodewarden isolate`: a person takes nodes out."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "isolate",
    "isolate",
    "NODES",
    "Take NODES out, n[01-04],n7; budgets do not bind a person, and the audit says who.",
    many=True,
)
