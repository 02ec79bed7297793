"""The order of the rungs, from the most certain down."""

from __future__ import annotations

from actions.policy.crash import CRASH
from actions.policy.distributed import DISTRIBUTED
from actions.policy.group import GROUP, HANG
from actions.policy.machine import CERTAIN, LOST, SAME_PLACE, UNCERTAIN
from actions.policy.network import FLAP, SHARED
from actions.policy.settled import GIVEN, WORKED
from actions.policy.silent import SILENT
from actions.policy.slow import SLOW, SLOW_ALONE
from actions.policy.soft import SPIKE, TELEMETRY, USER_CODE
from actions.policy.table import Rung

LADDER: tuple[Rung, ...] = (
    TELEMETRY, WORKED, GIVEN, CERTAIN, USER_CODE, SHARED, SILENT, SLOW, GROUP, SLOW_ALONE, FLAP,
    SPIKE, DISTRIBUTED, HANG, CRASH, SAME_PLACE, LOST, UNCERTAIN,
)  # fmt: skip
