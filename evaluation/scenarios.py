"""Named small scenarios: faults, their look-alikes, and the healthy twin of each.

Each is an independent run, because a job-ending fault ends the steps for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.faults import FAULTS, KINDS, FaultSpec, nearest
from evaluation.faults import LOOK_ALIKES as ALIKE
from evaluation.simulator import START_S, Simulation
from telemetry.errors import SettingsError
from telemetry.settings import EngineSettings

DEMO_SEED = 20
_GAP_S = 3 * 3_600.0  # longer than any timer that could join two runs


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run by name. `run` makes it; the same seed makes the same bytes."""

    name: str
    text: str
    faults: tuple[FaultSpec, ...]
    nodes: int = 64
    minutes: float = 30.0

    def run(
        self, seed: int = 0, start_s: float = START_S, settings: EngineSettings | None = None
    ) -> Simulation:
        """The simulation, not yet started."""
        return Simulation(
            self.nodes,
            minutes=self.minutes,
            seed=seed,
            faults=self.faults,
            start_s=start_s,
            settings=settings,
        )

    def twin(self) -> Scenario:
        """The same cluster and length without a fault."""
        return Scenario(f"{self.name}-healthy", "nothing is wrong", (), self.nodes, self.minutes)


def _one(kind: str, target: str, offset_min: float, minutes: float) -> Scenario:
    faults = (FaultSpec(kind, target, offset_min * 60.0),)
    return Scenario(kind, KINDS[kind].text, faults, minutes=minutes)


# Where and when, for those that the demo and the documents show; all others strike n003.
_PLACES = {
    "xid79": ("n017", 8.0), "ecn": ("n003", 10.0), "thermal": ("n042", 10.0), "nan": ("n000", 8.0),
    "silent": ("n029", 8.0), "leaf": ("leaf-05", 10.0), "usercode": ("n011", 8.0),
    "hot": ("n042", 10.0), "agent-dead": ("n029", 8.0), "stage-imbalance": ("n060", 10.0),
    "xid13": ("n021", 8.0),
}  # fmt: skip
_LENGTHS_MIN = {"xid79": 15.0, "nan": 15.0, "silent": 15.0, "usercode": 15.0, "agent-dead": 15.0,
                "xid13": 20.0}  # fmt: skip


def _row(name: str) -> Scenario:
    """A kind at its typical size, long enough to be judged."""
    target, offset_min = _PLACES.get(name, ("n003", 10.0))
    usual_min = offset_min + KINDS[name].run_s / 60.0
    return _one(name, target, offset_min, _LENGTHS_MIN.get(name, usual_min))


FAULTY: tuple[Scenario, ...] = tuple(_row(name) for name in FAULTS)
LOOK_ALIKES: tuple[Scenario, ...] = (
    Scenario("healthy", "nothing is wrong", ()),
    *(_row(name) for name in ALIKE),
)
SCENARIOS: dict[str, Scenario] = {row.name: row for row in (*FAULTY, *LOOK_ALIKES)}
_DEMO = ("xid79", "ecn", "thermal", "silent", "leaf", "nan", "usercode", "ecn-only")


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises SettingsError with the nearest name."""
    if name not in SCENARIOS:
        raise SettingsError(
            f"unknown scenario {name!r}{nearest(name, list(SCENARIOS))};"
            f" scenarios are {', '.join(SCENARIOS)}"
        )
    return SCENARIOS[name]


def demo(
    seed: int = DEMO_SEED, settings: EngineSettings | None = None
) -> Sequence[tuple[str, Simulation]]:
    """What `nodewarden demo` shows: independent runs, one after the other in time."""
    runs = []
    start_s = START_S
    for name in _DEMO:
        run = SCENARIOS[name].run(seed, start_s, settings)
        runs.append((name, run))
        start_s = run.end_s + _GAP_S
    return tuple(runs)
