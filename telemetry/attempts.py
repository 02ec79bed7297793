"""The steps of the ladder that were asked for or made for a job, and what became of them."""

from __future__ import annotations

from typing import Literal

import msgspec

Step = Literal[
    "eviction", "checks", "checked_eviction", "retry", "rollback", "replay", "root_diag",
    "config_and_net", "stacks", "quarantine",
]  # fmt: skip
FinalCause = Literal["transient", "user_code", "hardware"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the ladder that was asked for or made for a job.

    at       when it was asked for, or told
    told     somebody said what became of it; else it is only known that it was asked for
    nodes    evictions: the nodes that go; checks and diagnoses: the nodes that they found,
             [] where they found none, None where nobody knows
    scores   of `nodes`, how far each stands out; [] where nobody said
    group    which parallel group the stacks show: "pp 3"
    worked   whether the job ended steps again after it; None where nobody knows
    """

    step: Step
    at: float
    incident: str
    told: bool = False
    nodes: list[str] | None = None
    scores: list[float] = []
    group: str = ""
    worked: bool | None = None
