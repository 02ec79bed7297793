"""Named small scenarios: faults, their look-alikes, and the healthy twin of each.

Each is an independent run, because a job-ending fault ends the steps for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.faults import KINDS, FaultSpec, nearest
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


# Metric evidence needs the ten minutes of the published rule, so those runs are longer.
FAULTY: tuple[Scenario, ...] = (
    _one("xid79", "n017", 8.0, 15.0),
    _one("ecn", "n003", 10.0, 30.0),
    _one("thermal", "n042", 10.0, 30.0),
    _one("nan", "n000", 8.0, 15.0),
    _one("silent", "n029", 8.0, 15.0),
    _one("leaf", "leaf-05", 10.0, 30.0),
    _one("usercode", "n011", 8.0, 15.0),
)
LOOK_ALIKES: tuple[Scenario, ...] = (
    Scenario("healthy", "nothing is wrong", ()),
    _one("ecn-only", "n003", 10.0, 30.0),
    _one("hot", "n042", 10.0, 30.0),
    _one("agent-dead", "n029", 8.0, 15.0),
    _one("slow-code", "n000", 10.0, 30.0),
    _one("stage-imbalance", "n060", 10.0, 30.0),
    _one("phase-change", "n000", 10.0, 30.0),
    _one("xid13", "n021", 8.0, 20.0),
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
