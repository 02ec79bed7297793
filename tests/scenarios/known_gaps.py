"""What the engine does not yet say of a kind of fault; each row is a strict xfail of `test_grid`.

Whoever closes a gap removes its row: until then the test that passes fails.
"""

from __future__ import annotations

GAPS: dict[str, str] = {
    "ecc-storm": "no rule on the rate of corrected memory errors",
    "driver-hang": "a driver that hangs is told as a job's hang, not as its node",
    "nvme": "a dead disk is paged, not isolated",
    "oom": "a host without memory is only the job's hang",
    "loss-drift": "no rule on a loss that creeps up",
}
