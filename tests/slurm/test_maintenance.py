"""A real reservation for maintenance shuts the rails, and nothing of it stays when it is gone."""

from __future__ import annotations

import time

import msgspec
import pytest

from actions.context import rail_context
from actions.ledger import Ledger
from actions.rails import decide, may_change
from collectors.inventory.slurm_commands import SlurmCommands
from collectors.inventory.state import InventoryState
from nodewarden.act_site import SiteReader
from nodewarden.clock import SystemClock
from telemetry.actions import Decision
from telemetry.settings import ActSettings, Configuration, RailSettings, SlurmSettings
from telemetry.testing import MemoryLog, MemoryPublisher
from telemetry.topics import INVENTORY
from tests.acting import incident
from tests.inventory_fold import WAIT_MAX_S
from tests.slurm.cluster import Slurm

pytestmark = pytest.mark.slurm
CLOCK = SystemClock()
ACT = ActSettings(
    rails=RailSettings(mode_default="auto", settle_s=0.0), first_observe_s=0.0, workers=(),
    inventory="",
)  # fmt: skip


class Known:
    """What act knows of a real Slurm, by way of the topic."""

    def __init__(self, slurm: Slurm) -> None:
        self._source = SlurmCommands(SlurmSettings(conf=slurm.conf), CLOCK)
        self._log, self._publisher = MemoryLog({INVENTORY: 1}), MemoryPublisher()
        self._state = InventoryState(self._publisher, {}, 900_000)
        self._reader = SiteReader(Configuration(act=ACT), CLOCK, self._log.reader)

    def decided(self, node: str) -> Decision:
        """What becomes of a verdict that the node has to go."""
        self._state.become(self._source.listing())
        for sent in self._publisher.records:
            self._log.append(INVENTORY, sent.value, key=sent.key)
        self._publisher.records = []
        self._reader.refresh()
        now_s = CLOCK.time_s()
        site = msgspec.structs.replace(
            self._reader.site, nodes=4, blind_nodes=0, telemetry_at=now_s, measured_at=now_s,
            listing_at=now_s,
        )  # fmt: skip
        story = incident("x")
        verdict = msgspec.structs.replace(story.verdict, targets=[node], at=now_s)
        ledger = Ledger()
        ledger.first_at = 0.0
        return decide(verdict, story, rail_context(ledger, site, ACT, now_s), ACT.rails, now_s)


def refusing(decision: Decision) -> set[str]:
    return {rail.name for rail in decision.rails if not rail.passed}


def test_within_it_is_refused_by_the_window_alone_and_after_it_the_node_may_go(
    slurm: Slurm,
) -> None:
    known = Known(slurm)
    assert "approved" == known.decided("node1").state

    slurm.run(
        "scontrol", "create", "reservation", "reservationname=firmware", "starttime=now",
        "duration=60", "nodes=node1", "flags=maint,ignore_jobs", "users=root",
    )  # fmt: skip
    end_s = time.monotonic() + WAIT_MAX_S
    while "maint" not in slurm.run("sinfo", "--noheader", "--nodes=node1", "--format=%T"):
        assert time.monotonic() < end_s
        time.sleep(0.2)
    within = known.decided("node1")
    assert ("refused", {"maintenance"}) == (within.state, refusing(within))
    assert "maintenance window firmware" in within.reason
    assert may_change(within)
    assert "approved" == known.decided("node2").state

    slurm.run("scontrol", "delete", "reservationname=firmware")
    assert "approved" == known.decided("node1").state
