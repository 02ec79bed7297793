"""`nodewarden isolate`: a person takes a node out."""

from __future__ import annotations

from nodewarden.act_client import asking

command = asking(
    "isolate",
    "isolate",
    "NODE",
    "Take NODE out; budgets do not bind a person, and the audit says who.",
)
