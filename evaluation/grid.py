"""Every kind of fault at every size on clusters of several sizes: found, missed, wrong, how late.

    python -m evaluation.grid --json --out grid.jsonl

A cell is (kind, size, nodes, seed). Each judged cell is one line of the results file; what stands
there is not run again, so a run may be stopped and continued.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from evaluation.cluster import LEAF_NODES
from evaluation.faults import KINDS, SIZES, FaultSpec, SizeName
from evaluation.scoring import Truth, score
from evaluation.simulator import Simulation
from streams.fold import Fold
from streams.replay import Outcome
from streams.verdicts import Decide
from telemetry.errors import InputError
from telemetry.findings import ISOLATING, Incident
from telemetry.records import Arrived

ONSET_S = 600.0
NODES = (8, 64, 512)
SEEDS = (1, 2, 3, 4, 5)
TARGET = "n003"
Told = Literal["found", "missed", "unclear", "wrong", "quiet"]
PAGING = frozenset({"page", "diagnose", "rollback", "restart"})


class Cell(msgspec.Struct, frozen=True, order=True):
    """One run of the grid."""

    kind: str
    size: SizeName
    nodes: int
    seed: int


class Result(msgspec.Struct, frozen=True):
    """What came of one.

    told      found: the right nodes with kind, cause and action as expected; missed: nothing of
              it; unclear: something, but not so; wrong: a node was isolated that should not be;
              quiet: nobody was isolated, as it should be
    said      "kind/cause/action nodes" of each incident, in order
    delay_s   from the onset to the verdict that was expected, None where there was none
    findings  opened findings by detector
    """

    cell: Cell
    told: Told
    delay_s: float | None
    said: list[str]
    findings: dict[str, int]

    @property
    def is_right(self) -> bool:
        """Whether it is what should be."""
        return self.told in ("found", "quiet")


def cells(
    kinds: Iterable[str] = tuple(KINDS),
    sizes: Sequence[SizeName] = SIZES,
    nodes: Sequence[int] = NODES,
    seeds: Sequence[int] = SEEDS,
) -> Iterator[Cell]:
    """The cells, small clusters first; a kind of one size has one."""
    for count in nodes:
        for seed in seeds:
            for kind in kinds:
                for size in KINDS[kind].sizes:
                    if size in sizes:
                        yield Cell(kind, size, count, seed)


def simulation(cell: Cell) -> Simulation:
    """The run of a cell: ten minutes of health, then the fault."""
    what = KINDS[cell.kind]
    faults = [FaultSpec(cell.kind, TARGET, ONSET_S, size=cell.size)]
    minutes = (ONSET_S + what.run_s) / 60.0
    return Simulation(cell.nodes, minutes=minutes, seed=cell.seed, faults=faults)


def judge(cell: Cell, decide: Decide) -> Result:
    """Run one cell and compare what was said with what is true."""
    run, fold, outcome = simulation(cell), Fold(decide), Outcome()
    for offset, (arrival_s, record) in enumerate(run.records()):
        said = fold.step(Arrived(offset, arrival_s, record))
        if said.findings or said.incidents:
            outcome.take(said)
    assert fold.counters.conserved()
    truth = msgspec.convert(run.truth(), Truth)
    incidents = outcome.sorted_incidents()
    scored = score(incidents, truth, fold.counters.last_at or run.end_s)
    told, delay_s = _told(cell, truth, incidents, scored.wrong > 0)
    return Result(
        cell=cell,
        told=told,
        delay_s=delay_s,
        said=[_text(incident) for incident in incidents],
        findings=dict(sorted(fold.counters.findings.items())),
    )


def _told(
    cell: Cell, truth: Truth, incidents: Sequence[Incident], wrong: bool
) -> tuple[Told, float | None]:
    (fault,) = truth.faults
    what = KINDS[cell.kind]
    if wrong:
        return "wrong", None
    if what.expect == "none":
        return "quiet", None
    # A fault of all that there is cannot be told from one of the job.
    whole = what.scope == "leaf" and cell.nodes <= LEAF_NODES
    for incident in incidents:
        verdicts = [v for v in incident.verdicts if v.at >= fault.onset]
        if what.expect == "isolate":
            right = [v for v in verdicts if v.action in ISOLATING and v.targets == fault.nodes]
        else:
            right = [v for v in verdicts if v.action in PAGING]
        named = incident.kind in what.kinds and incident.cause in what.causes
        if right and (named or whole):
            return "found", round(right[0].at - fault.onset, 3)
    return ("unclear" if incidents else "missed"), None


def _text(incident: Incident) -> str:
    nodes = " ".join(incident.verdict.targets)
    said = f"{incident.kind}/{incident.cause}/{incident.verdict.action} {nodes}"
    return said.strip()


def read_results(path: Path) -> list[Result]:
    """The results of an earlier run; a torn last line is left out. Raises InputError."""
    if not path.exists():
        return []
    results = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            results.append(msgspec.json.decode(line, type=Result))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise InputError(f"{path}:{number}: {error}; remove the file to begin anew") from error
    return results


def table(results: Sequence[Result]) -> str:
    """One line for each kind and size: counts by outcome, median delay, what was said otherwise."""
    rows: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        rows[result.cell.kind, result.cell.size].append(result)
    lines = ["kind               size     expect   right/all  delay s  said otherwise"]
    for kind in KINDS:
        for size in SIZES:
            found = rows.get((kind, size))
            if not found:
                continue
            right = sum(one.is_right for one in found)
            delays = [one.delay_s for one in found if one.delay_s is not None]
            late = f"{median(delays):8.1f}" if delays else "       -"
            other = sorted({f"{o.told}: {', '.join(o.said)}" for o in found if not o.is_right})
            lines.append(
                f"{kind:18} {size:8} {KINDS[kind].expect:8} {right:5}/{len(found):<3}  {late}"
                f"  {'; '.join(other[:2])}".rstrip()
            )
    return "\n".join(lines)


def run_grid(wanted: Sequence[Cell], decide: Decide, out: Path | None) -> Iterator[Result]:
    """Results of all wanted cells; those that the file has are read, the others run and added."""
    known = {result.cell: result for result in (read_results(out) if out else ())}
    if out is not None and out.exists() and not out.read_bytes().endswith(b"\n"):
        # Cut off a torn last line before anything is added behind it.
        out.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in known.values()))
    for cell in wanted:
        result = known.get(cell)
        if result is None:
            result = judge(cell, decide)
            if out is not None:
                with out.open("ab") as stream:
                    stream.write(msgspec.json.encode(result) + b"\n")
        yield result


def load(name: str) -> Decide:
    """The ladder by its name, "module:function": evaluation does not know actions."""
    module, _, function = name.partition(":")
    decide: Decide = getattr(import_module(module), function)
    return decide


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit status 1 where a node was isolated that should not be."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.grid", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object a cell instead of a table")
    parser.add_argument("--out", type=Path, help="results file, to be continued")
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--nodes", nargs="*", type=int, default=list(NODES))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--decide", default="actions.policy:verdict")
    asked = parser.parse_args(arguments)
    wanted = list(cells(asked.kinds, asked.sizes, asked.nodes, asked.seeds))
    results = []
    for done, result in enumerate(run_grid(wanted, load(asked.decide), asked.out), 1):
        results.append(result)
        if asked.json:
            print(msgspec.json.encode(result).decode(), flush=True)
        elif sys.stderr.isatty():
            print(f"\r{done}/{len(wanted)}", end="", file=sys.stderr, flush=True)
    if not asked.json:
        print(table(results))
    return int(any(result.told == "wrong" for result in results))


if __name__ == "__main__":
    sys.exit(main())
