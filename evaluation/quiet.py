"""A quiet cluster straight into the engine: nothing may be isolated; what is found is counted.

python -m evaluation.quiet --nodes 256 --hours 168
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec

from evaluation.grid import load
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.replay import Outcome
from streams.verdicts import Decide
from telemetry.findings import ISOLATING
from telemetry.records import Arrived, Frame

_SHOW_EVERY_S = 3_600.0


class Quiet(msgspec.Struct, frozen=True):
    """What came of it.

    per_node_day  opened findings by detector, per node and day; most are evidence
    incidents     by "kind/action"
    """

    node_days: float
    samples: int
    isolated: list[str]
    incidents: dict[str, int]
    per_node_day: dict[str, float]


def watch(nodes: int, hours: float, seed: int, decide: Decide, show: bool = False) -> Quiet:
    """Simulate and judge; memory is bounded, whatever the hours."""
    run, fold, outcome = Simulation(nodes, minutes=60.0 * hours, seed=seed), Fold(decide), Outcome()
    samples, shown_s, began_s = 0, run.start_s, time.monotonic()
    for offset, (arrival_s, record) in enumerate(run.records()):
        if isinstance(record, Frame):
            samples += sum(map(len, record.metrics.values()))
        said = fold.step(Arrived(offset, arrival_s, record))
        if said.findings or said.incidents:
            outcome.take(said)
        if show and arrival_s - shown_s >= _SHOW_EVERY_S:
            shown_s = arrival_s
            passed_h = (arrival_s - run.start_s) / 3_600.0
            rate = samples / (time.monotonic() - began_s) / 1e6
            print(f"\r{passed_h:7.1f} h, {rate:.1f} M samples/s", end="", file=sys.stderr)
    assert fold.counters.conserved()
    incidents: dict[str, int] = {}
    isolated: set[str] = set()
    for incident in outcome.sorted_incidents():
        name = f"{incident.kind}/{incident.verdict.action}"
        incidents[name] = incidents.get(name, 0) + 1
        for verdict in incident.verdicts:
            if verdict.action in ISOLATING:
                isolated.update(verdict.targets)
    node_days = nodes * hours / 24.0
    return Quiet(
        node_days=node_days,
        samples=samples,
        isolated=sorted(isolated),
        incidents=dict(sorted(incidents.items())),
        per_node_day={
            name: round(count / node_days, 6)
            for name, count in sorted(fold.counters.findings.items())
        },
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit status 1 where a node was isolated."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.quiet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--hours", type=float, default=168.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--decide", default="actions.policy:verdict")
    asked = parser.parse_args(arguments)
    show = sys.stderr.isatty()
    quiet = watch(asked.nodes, asked.hours, asked.seed, load(asked.decide), show)
    if asked.json:
        print(msgspec.json.encode(quiet).decode())
    else:
        print(report(quiet))
    return int(bool(quiet.isolated))


def report(quiet: Quiet) -> str:
    """As a few lines for people."""
    lines = [
        f"{quiet.node_days:g} node-days, {quiet.samples} samples, isolated:"
        f" {', '.join(quiet.isolated) or 'nobody'}",
        f"incidents: {', '.join(f'{n} {c}' for n, c in quiet.incidents.items()) or 'none'}",
        "findings per node-day:",
    ]
    lines += [f"  {name:20} {rate:10.4f}" for name, rate in quiet.per_node_day.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
