"""An account on a terminal; on a pipe there are no boxes, no colours and no wrapping."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from console.account_tables import RIGHT, facts, headline, silent, tables
from console.summary import Table
from console.text import duration, name, utc, visible
from telemetry.accounts import Account

NOTES_MAX = 20


def print_account(account: Account, cluster: str, read: str, console: Console) -> None:
    """Print the facts, every table and the notes."""
    _say(console, Text(f"Accounting of cluster {name(cluster)}", style="bold"))
    _say(console, Text(origin(account, read)))
    _say(console, Text(headline(account), style="bold"))
    for fact in facts(account):
        hint = f" ({fact.hint})" if fact.hint else ""
        _say(console, Text(f"  {fact.label}: {fact.value}{hint}"))
    for table in tables(account):
        _say(console, Text(""))
        _say(console, Text(table.title, style="bold"))
        _say(console, _grid(table, console.is_terminal))
        if table.left_out:
            _say(console, Text(f"{table.left_out:,} more rows not shown here", style="dim"))
    if account.silent_jobs:
        _say(console, Text(f"note: {silent(account)}"))
    for note in account.notes[:NOTES_MAX]:
        _say(console, Text(f"note: {visible(note, 600)}"))
    if (left_out := len(account.notes) - NOTES_MAX) > 0:
        _say(console, Text(f"{left_out:,} more notes"))


def origin(account: Account, read: str) -> str:
    """Of what and when it is."""
    of = f"job {name(account.job)}, " if account.job else ""
    if account.period is None:
        return f"{of}from {visible(read, 300)}, no dated telemetry"
    start, end = account.period
    return f"{of}from {visible(read, 300)}, {utc(start)} to {utc(end)} ({duration(end - start)})"


def print_plain(table: Table, console: Console) -> None:
    """Head and rows, each one line however long: what people copy is not broken."""
    lines = "\n".join(line.removeprefix("  ") for line in _plain(table))
    console.print(Text(lines), soft_wrap=True, highlight=False)


def _grid(table: Table, boxed: bool) -> RenderableType:
    """Columns; where there is no width they are as wide as they need to be."""
    if not boxed:
        return Text("\n".join(_plain(table)))
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in table.head:
        grid.add_column(Text(head), overflow="fold", justify="right" if head in RIGHT else "left")
    for row in table.rows:
        grid.add_row(*(Text(field) for field in row))
    return grid


def _plain(table: Table) -> list[str]:
    """Padded by what characters take on a terminal; no blanks at the end of a line."""
    lines = [table.head, *table.rows]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(table.head))]
    return ["  " + "  ".join(_padded(field, width, head in RIGHT) for field, width, head
                             in zip(line, widths, table.head, strict=True)).rstrip()
            for line in lines]  # fmt: skip


def _padded(field: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(field))
    return blanks + field if right else field + blanks


def _say(console: Console, what: RenderableType) -> None:
    console.print(what, soft_wrap=not console.is_terminal, highlight=False, markup=False)
