"""Captures through Kafka and the live worker: told as replay tells them, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from evaluation.writers import write_capture
from tests.kafka.broker import Broker
from tests.kafka.comparing import fold_live, gist, incidents_replayed

pytestmark = pytest.mark.kafka
DATA = Path(__file__).parents[1] / "data"
# The second lies a day before the first, the third two more.
CAPTURES = ("capture-ecn", "capture-mixed", "capture-gaps")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of 64 nodes, one of them with a congested NIC."""
    out = tmp_path_factory.mktemp("captures") / "capture-64"
    run = Simulation(
        64, 2, minutes=25.0, seed=11, faults=[parse_fault("ecn@n017+600")],
        start_s=START_S - 7 * 86_400.0,
    )  # fmt: skip
    write_capture(run, out, metrics=["nic_ecn_marked_packets_total", "gpu_temperature_celsius"])
    return out


def test_captures_imported_one_after_the_other_are_told_as_replay_tells_them(
    kafka: Broker, big: Path, tmp_path: Path
) -> None:
    captures = [*(DATA / name for name in CAPTURES), big]

    told = fold_live(kafka, tmp_path, *(("import", capture) for capture in captures))

    assert told.incidents == incidents_replayed(*captures)
    assert told.incidents == incidents_replayed(told.archive)
    said = gist(told.incidents)
    assert [one for one in said if one[2]] == [
        ("nic_congested", "isolate_and_restart", ("n017",)),
        ("gpu_thermal", "isolate_and_restart", ("n006",)),
        ("gpu_lost", "isolate_and_restart", ("n005",)),
        ("nic_congested", "isolate_and_restart", ("n003",)),
    ]
    assert ("user_error", "page", ()) in said
