"""What the engine does not yet say of a kind of fault; each row is a strict xfail of `test_grid`.

Whoever closes a gap removes its row: until then the test that passes fails.
"""

from __future__ import annotations

GAPS: dict[str, str] = {
    "ecc-storm": "no rule on the rate of corrected memory errors",
    "xid94": "repeated contained errors of one GPU are paged, not isolated",
    "driver-hang": "a driver that hangs is told as a job's hang, not as its node",
    "flap": "two flaps within five minutes: the node is isolated, but as a slow job's",
    "flap-slow": "no rule on three flaps within hours",
    "nvme": "a dead disk is paged, not isolated",
    "readonly-fs": "a file system that became read-only is paged, not isolated",
    "oom": "a host without memory is only the job's hang",
    "loss-drift": "no rule on a loss that creeps up",
}
