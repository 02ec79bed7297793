"""Each kind of fault at each size: the right nodes, kind, cause and action; each twin: nobody.

Quick: 8 nodes, one seed. Slow: 64 nodes with two seeds, and one kind of each family on 512 nodes.
All of it: `make grid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from actions.policy import verdict
from evaluation.faults import FAULTS, KINDS, LOOK_ALIKES, SizeName
from evaluation.grid import Cell, Result, cells, judge, read_results, run_grid, table
from evaluation.quiet import report, watch
from telemetry.errors import InputError
from tests.scenarios.known_gaps import CHANCES, GAPS

SIZES: tuple[SizeName, ...] = ("obvious", "typical")
ON_512 = (
    "xid79", "thermal", "slow-rank", "ecn", "leaf", "silent", "hang-training", "loss-spike",
    "ecn-only", "stage-imbalance", "blind", "ambient",
)  # fmt: skip


def rows(wanted: Iterable[Cell]) -> list[object]:
    """Parameters; what the engine cannot say yet is an xfail."""
    return [
        pytest.param(
            cell, id=f"{cell.kind}-{cell.size}-{cell.nodes}-{cell.seed}", marks=list(marks(cell))
        )
        for cell in wanted
    ]


def marks(cell: Cell) -> Iterator[pytest.MarkDecorator]:
    if cell.kind in GAPS:
        yield pytest.mark.xfail(reason=GAPS[cell.kind], strict=True)
    chance = CHANCES.get((cell.kind, cell.size, cell.nodes))
    if chance is not None:
        yield pytest.mark.xfail(reason=chance, strict=False)


def right(cell: Cell) -> None:
    result = judge(cell, verdict)
    print(f"{cell}: {result.told}, {result.delay_s} s, {result.said}")
    assert result.is_right, result


@pytest.mark.parametrize("cell", rows(cells(FAULTS, SIZES, (8,), (1,))))
def test_a_fault_is_named_with_its_kind_and_cause_and_acted_upon(cell: Cell) -> None:
    right(cell)


@pytest.mark.parametrize("cell", rows(cells(LOOK_ALIKES, SIZES, (8,), (1,))))
def test_a_look_alike_isolates_nobody(cell: Cell) -> None:
    right(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", rows(cells(KINDS, SIZES, (64,), (1, 2))))
def test_64_nodes_are_judged_alike(cell: Cell) -> None:
    right(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", rows(cells(ON_512, ("typical",), (512,), (1,))))
def test_512_nodes_are_judged_alike(cell: Cell) -> None:
    right(cell)


@pytest.mark.slow
def test_six_quiet_hours_of_256_nodes_isolate_nobody() -> None:
    quiet = watch(256, 6.0, 1, verdict)
    print(report(quiet))
    assert quiet.isolated == []


def test_gaps_are_of_kinds_that_exist() -> None:
    assert set(GAPS) <= set(KINDS)


def test_an_interrupted_grid_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "grid.jsonl"
    wanted = list(cells(("xid79", "nan", "aux-port"), ("typical",), (8,), (1,)))
    first = list(run_grid(wanted[:2], verdict, out))
    out.write_bytes(out.read_bytes() + b'{"cell":{"kind":"au')  # torn by the interruption

    # Known cells are not run again: what stands in the file is what is given.
    second = list(run_grid(wanted, verdict, out))

    assert second[:2] == first
    assert read_results(out) == second
    assert "aux-port" in table(second)


def test_a_broken_results_file_is_refused_with_its_line(tmp_path: Path) -> None:
    out = tmp_path / "grid.jsonl"
    out.write_bytes(b"nonsense\n{}\n")
    with pytest.raises(InputError, match=r"grid.jsonl:1: .*remove the file"):
        read_results(out)


def test_the_table_gives_the_median_delay_and_what_was_said_otherwise() -> None:
    cell = Cell("xid79", "typical", 8, 1)
    told = [
        Result(cell, "found", 2.0, [], {}),
        Result(cell, "found", 4.0, [], {}),
        Result(cell, "wrong", None, ["gpu_lost/hardware/isolate n001"], {}),
    ]
    (_, line) = table(told).splitlines()
    assert line.split()[:6] == ["xid79", "typical", "isolate", "2/3", "3.0", "wrong:"]
