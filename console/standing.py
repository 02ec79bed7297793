"""What `nodewarden status` says, and how it is shown to people: a summary and the worst.

Data is put into `Text` objects after `visible`: names come from outside.
"""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.text import visible

NAMES_SHOWN = 8


class SourceStanding(msgspec.Struct, frozen=True):
    """One source over all nodes.

    nodes     that sent it within the window
    missing   expected nodes that did not
    age_s     of the newest record
    """

    source: str
    nodes: int
    missing: int
    age_s: float


class NodeStanding(msgspec.Struct, frozen=True):
    """One node at which something is missing.

    missing   sources that most nodes send and this one does not
    blind     what it sends without a value: "gpu" as a whole, or names of metrics
    age_s     of its newest record, None where nothing came within the window
    """

    node: str
    missing: list[str]
    blind: list[str]
    age_s: float | None


class ShardStanding(msgspec.Struct, frozen=True):
    """One shard of a worker, as its own metrics have it; None what it does not say."""

    shard: str
    lag_records: float | None = None
    delay_s: float | None = None
    lag_retention_ratio: float | None = None


class Standing(msgspec.Struct, frozen=True):
    """How the pipeline stands.

    problems    sentences; where there are none all is well
    window_s    the stretch of the log that was looked at, as long as it could be read
    expected    nodes that the inventory lists and the scheduler has not taken out; without an
                inventory those that were heard
    coverage    (node, source) pairs heard over those expected, None where nothing is expected
    off         what cannot be seen anywhere: nobody sends its metrics
    ages        in seconds of the newest beat, allocation and whole listing; None where none was
                seen
    """

    at: float
    problems: list[str]
    window_s: float
    records: int
    expected: int
    reporting: int
    silent: list[str]
    unlisted: list[str]
    coverage: float | None
    beat_age_s: float | None
    allocation_age_s: float | None
    listing_age_s: float | None
    sources: list[SourceStanding]
    nodes: list[NodeStanding]
    off: list[str]
    shards: list[ShardStanding]


def shown(standing: Standing, nodes_max: int) -> RenderableType:
    """Tables for a terminal, of any cluster at most a few screens."""
    parts: list[RenderableType] = [_summary(standing)]
    if standing.sources:
        parts.append(_sources(standing.sources))
    if standing.shards:
        parts.append(_shards(standing.shards))
    if standing.nodes:
        parts.append(_nodes(standing.nodes, nodes_max))
    if standing.off:
        parts.append(Text(f"nobody sends what would show: {', '.join(standing.off)}"))
    style = "red" if standing.problems else "green"
    told = standing.problems or ["all is well"]
    parts += [Text(visible(problem), style=style) for problem in told]
    return Group(*parts)


def _summary(standing: Standing) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in (
        ("nodes reporting", f"{standing.reporting} of {standing.expected}"),
        ("coverage", _share(standing.coverage)),
        ("silent", _names(standing.silent)),
        ("not in the inventory", _names(standing.unlisted)),
        ("looked at", f"{standing.records} records of the last {standing.window_s:.0f} s"),
        ("newest beat", _age(standing.beat_age_s)),
        ("newest allocation", _age(standing.allocation_age_s)),
        ("newest whole listing", _age(standing.listing_age_s)),
    ):
        table.add_row(name, Text(visible(value)))
    return table


def _sources(sources: list[SourceStanding]) -> Table:
    table = Table("source", "nodes", "missing", "newest", title="Sources", title_justify="left")
    for one in sources:
        style = "red" if one.missing else ""
        table.add_row(
            Text(visible(one.source)), str(one.nodes), Text(str(one.missing), style=style),
            _age(one.age_s),
        )  # fmt: skip
    return table


def _shards(shards: list[ShardStanding]) -> Table:
    table = Table("shard", "lag", "delay", "of retention", title="Worker", title_justify="left")
    for one in shards:
        lag = "-" if one.lag_records is None else f"{one.lag_records:.0f} records"
        table.add_row(
            Text(visible(one.shard)), lag, _age(one.delay_s), _share(one.lag_retention_ratio)
        )
    return table


def _nodes(nodes: list[NodeStanding], nodes_max: int) -> Table:
    more = len(nodes) - nodes_max
    title = f"Nodes, the worst{f'; {more} more' if more > 0 else ''}"
    table = Table("node", "missing", "blind", "newest", title=title, title_justify="left")
    for one in nodes[:nodes_max]:
        table.add_row(
            Text(visible(one.node)), Text(visible(_names(one.missing))),
            Text(visible(_names(one.blind))), _age(one.age_s),
        )  # fmt: skip
    return table


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "") or "-"


def _age(age_s: float | None) -> str:
    return "-" if age_s is None else f"{age_s:.0f} s"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
