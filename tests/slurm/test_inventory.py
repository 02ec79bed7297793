"""`nodewarden inventory` follows a real Slurm, asked in each of its ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from collectors.inventory.refined import Refined
from collectors.inventory.slurm_commands import SlurmCommands
from collectors.inventory.slurm_rest import SlurmRest
from collectors.inventory.source import InventorySource
from nodewarden.clock import SystemClock
from telemetry.errors import InputError
from telemetry.settings import InventorySettings, SlurmrestdSettings, SlurmSettings
from tests.inventory_fold import WAIT_MAX_S, Followed
from tests.slurm.cluster import Slurm

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()


def commands(slurm: Slurm, output: Literal["auto", "text"] = "auto") -> InventorySource:
    asked = SlurmCommands(SlurmSettings(conf=slurm.conf, output=output), CLOCK)
    return Refined(asked, InventorySettings(), CLOCK)


def by_json(slurm: Slurm) -> InventorySource:
    return commands(slurm)


def by_text(slurm: Slurm) -> InventorySource:
    return commands(slurm, "text")


def rest_settings(slurm: Slurm, url: str) -> SlurmrestdSettings:
    return SlurmrestdSettings(url=url, user="root", token_file=str(slurm.rest()))


def by_rest(slurm: Slurm) -> InventorySource:
    settings = rest_settings(slurm, f"http://127.0.0.1:{slurm.rest_port}")
    return Refined(SlurmRest(settings, (), CLOCK), InventorySettings(), CLOCK)


def by_socket(slurm: Slurm) -> InventorySource:
    settings = rest_settings(slurm, f"unix:{slurm.directory}/rest.sock")
    return Refined(SlurmRest(settings, (), CLOCK), InventorySettings(), CLOCK)


WAYS: tuple[Callable[[Slurm], InventorySource], ...] = (by_json, by_text, by_rest, by_socket)


@pytest.mark.parametrize("way", WAYS)
def test_the_fold_follows_jobs_drains_requeues_and_nodes_that_are_removed(
    slurm: Slurm, way: Callable[[Slurm], InventorySource]
) -> None:
    followed = Followed(way(slurm))
    assert dict.fromkeys(("node1", "node2", "node3", "node4"), "IDLE") == followed.states()

    job = slurm.submit(3)
    followed.until(lambda _: followed.jobs() == {job: ["node1", "node2", "node3"]})
    began_s = followed.clock.time_s()

    slurm.run("scontrol", "update", "nodename=node4", "state=drain", "reason=by hand, it squeaks")
    known = followed.until(lambda now: not now.in_service("node4"))
    info = known.info("node4")
    assert info is not None
    assert ("IDLE+DRAIN", "root") == (info.state, info.owner)
    assert known.in_service("node1")

    time.sleep(1.5)  # Slurm's times are whole seconds: the attempt has to last one
    slurm.run("scontrol", "requeuehold", job)
    idle = dict.fromkeys(("node1", "node2", "node3"), "IDLE")
    followed.until(lambda _: followed.jobs() == {} and idle.items() <= followed.states().items())
    while slurm.run("squeue", "--noheader", "--format=%T") != "PENDING":
        time.sleep(0.1)
    # Who held the job when it was still running is known for what is judged later.
    assert ["node1", "node2", "node3"] == list(followed.inventory.job_nodes(job, began_s))
    slurm.run("scontrol", "release", job)
    begin_now(slurm, job)
    followed.until(lambda _: list(followed.jobs()) == [job])
    ((_, started_s, attempt),) = followed.inventory.running_jobs(followed.clock.time_s())
    assert 1 == attempt
    assert started_s is not None
    assert started_s >= began_s - 1.0
    assert ["node1", "node2", "node3"] == followed.jobs()[job]

    slurm.run("scancel", job)
    followed.until(lambda _: followed.jobs() == {})
    slurm.resize(3)
    followed.until(lambda _: "node4" not in followed.states())
    assert followed.inventory.info("node4") is None
    assert not followed.inventory.in_service("node4")


def begin_now(slurm: Slurm, job: str) -> None:
    """A requeued job waits two minutes, and Slurm may set that after it was told otherwise."""
    end_s = time.monotonic() + WAIT_MAX_S
    while (state := slurm.run("squeue", "--noheader", "--format=%T %r")) != "RUNNING None":
        assert time.monotonic() < end_s, state
        if state == "PENDING BeginTime":
            slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
        time.sleep(0.2)


def test_leaf_switches_are_those_of_the_topology(slurm: Slurm) -> None:
    known = Followed(by_json(slurm)).inventory

    assert ["node1", "node2"] == list(known.leaf_nodes("leaf1"))
    assert ["node3", "node4"] == list(known.leaf_nodes("leaf2"))


@pytest.mark.parametrize("way", WAYS)
def test_a_controller_that_is_down_changes_nothing_and_is_followed_again(
    slurm: Slurm, way: Callable[[Slurm], InventorySource]
) -> None:
    job = slurm.submit(2)
    followed = Followed(way(slurm))
    followed.until(lambda _: list(followed.jobs()) == [job])
    before, version = followed.states(), followed.inventory.version
    slurm.end_controller()

    followed.until(lambda _: bool(followed.fault))
    assert (before, version) == (followed.states(), followed.inventory.version)
    assert [job] == list(followed.jobs())
    assert followed.metrics.failures._value.get() >= 1.0

    slurm.resize(4)
    followed.until(lambda _: not followed.fault)
    assert [job] == list(followed.jobs())


def test_a_wrong_token_is_said_with_its_remedy(slurm: Slurm, tmp_path: Path) -> None:
    slurm.rest()
    token = tmp_path / "wrong"
    token.write_text("SLURM_JWT=aaa.bbb.ccc\n")
    url = f"http://127.0.0.1:{slurm.rest_port}"
    settings = SlurmrestdSettings(url=url, user="root", token_file=str(token))

    followed = Followed(SlurmRest(settings, (), CLOCK))
    assert followed.fault.startswith(f"{url}/slurm/")
    assert {} == followed.states()
    with pytest.raises(InputError, match="holds slurmrestd's token"):
        SlurmRest(SlurmrestdSettings(url=url, token_file="/none"), (), CLOCK).listing()


def test_the_command_prints_what_it_would_tell(slurm: Slurm) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "inventory", "--slurm", "--once", "--stdout"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60.0,
        env={**os.environ, "NODEWARDEN_INVENTORY__SLURM__CONF": slurm.conf},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["settings", "allocation", "beat"] == [record["kind"] for record in told]
    assert ["node1", "node2", "node3", "node4"] == [node["name"] for node in told[1]["nodes"]]


def test_without_a_scheduler_once_ends_with_its_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "inventory", "--slurm", "--once", "--stdout"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60.0,
        env={**os.environ, "NODEWARDEN_INVENTORY__SLURM__SINFO": str(tmp_path / "no-sinfo")},
    )  # fmt: skip

    assert 3 == done.returncode
    last = done.stderr.splitlines()[-1]
    assert last.endswith("no-sinfo: No such file or directory")


@pytest.mark.parametrize("way", [by_text, by_rest])
def test_a_reservation_for_maintenance_is_a_window_and_each_node_has_its_boot(
    slurm: Slurm, way: Callable[[Slurm], InventorySource]
) -> None:
    source = way(slurm)
    assert [] == source.listing().maintenance

    slurm.run(
        "scontrol", "create", "reservation", "reservationname=firmware", "starttime=now",
        "duration=60", "nodes=node[1-2]", "flags=maint,ignore_jobs", "users=root",
    )  # fmt: skip
    slurm.run(
        "scontrol", "create", "reservation", "reservationname=course", "starttime=now+1hour",
        "duration=60", "nodes=node3", "users=root",
    )  # fmt: skip
    listing = source.listing()
    (window,) = listing.maintenance
    assert ("firmware", ["node1", "node2"]) == (window.name, window.nodes)
    assert abs(window.since - CLOCK.time_s()) < 60.0
    assert 3_600.0 == window.until - window.since
    assert all(node.boot_at is not None for node in listing.nodes)
    assert all((node.boot_at or 0.0) < CLOCK.time_s() for node in listing.nodes)

    # Its nodes' states tell of it too, and that is nobody's drain.
    end_s = time.monotonic() + WAIT_MAX_S
    while "MAINTENANCE" not in source.listing().nodes[0].state:
        assert time.monotonic() < end_s, source.listing().nodes[0]
        time.sleep(0.2)

    slurm.run("scontrol", "delete", "reservationname=firmware")
    assert [] == source.listing().maintenance
