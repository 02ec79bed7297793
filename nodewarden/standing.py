"""How the pipeline stands: read off the newest stretch of the log, the inventory, the worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from collectors.absence import absence
from collectors.agent.fetch import Endpoint
from console.standing import NodeStanding, ShardStanding, SourceStanding, Standing
from telemetry.archive_line import ArchiveLine
from telemetry.errors import NodewardenError, SourceUnavailable
from telemetry.log_reading import read_whole_piece
from telemetry.metrics import BY_NAME
from telemetry.ports import Clock, LogReader, Place
from telemetry.settings import Configuration

BLOCK = 5_000  # records that are read at once, from the end of the log backwards
RECORDS_MAX = 400_000
READ_MAX_S = 30.0
SOURCES_MAX = 64
MOST_SHARE = 0.5  # of the nodes: what they send is expected of all
METRIC_SHARE = 0.75
BLIND_SHOWN = 5
BEATS_MISSED = 6
DELAY_MAX_S = 30.0
RETENTION_MAX = 0.5
_OUT = ("drain", "down", "fail", "unschedulable", "cordoned", "maint", "powered")
_METRICS_TIMEOUT_S, _METRICS_BYTES_MAX = 5.0, 4_000_000


class _Head(msgspec.Struct):
    kind: str = ""
    node: str = ""
    source: str = ""
    listing: str = ""
    last: bool = False


class _Values(msgspec.Struct):
    metrics: dict[str, list[float | None]] = {}


class _Node(msgspec.Struct):
    state: str = ""


_HEAD = msgspec.json.Decoder(_Head)
_VALUES = msgspec.json.Decoder(_Values)


@dataclass(slots=True)
class Tail:
    """The newest stretch of a shard's log; times are the broker's, Unix seconds.

    frames   (node, source) -> its newest frame: when, the metrics with a value, those without
    heard    node -> its newest record
    newest   kind -> its newest record; "listing" a whole one
    is_whole the log holds nothing older
    """

    records: int = 0
    oldest_s: float | None = None
    frames: dict[tuple[str, str], tuple[float, frozenset[str], frozenset[str]]] = field(
        default_factory=dict
    )
    heard: dict[str, float] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict)
    is_whole: bool = False
    _sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)

    def take(self, line: ArchiveLine) -> None:
        """One record, each older than the one before."""
        at_s = line.timestamp_ms / 1e3
        self.records += 1
        self.oldest_s = at_s
        try:
            head = _HEAD.decode(line.value or b"")
            self.newest.setdefault(head.kind, at_s)
            if head.kind == "allocation" and head.listing and head.last:
                self.newest.setdefault("listing", at_s)
            if head.node:
                self.heard.setdefault(head.node, at_s)
            if head.kind == "frame" and (head.node, head.source) not in self.frames:
                self._frame(head, _VALUES.decode(line.value or b""), at_s)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.newest.setdefault("broken", at_s)

    def _frame(self, head: _Head, said: _Values, at_s: float) -> None:
        seen: set[str] = set()
        null: set[str] = set()
        for name, values in said.metrics.items():
            (seen if any(value is not None for value in values) else null).add(name)
        # Most nodes send the same: one set of names for all of them.
        seen_, null_ = frozenset(seen), frozenset(null)
        seen_, null_ = self._sets.setdefault(seen_, seen_), self._sets.setdefault(null_, null_)
        self.frames[head.node, head.source] = at_s, seen_, null_


def read_tail(reader: LogReader, place: Place, window_s: float, clock: Clock) -> Tail:
    """The last `window_s` of a shard's log, less where there are too many records.

    Raises SourceUnavailable.
    """
    tail = Tail()
    if place[1] not in reader.partitions(place[0]):
        raise SourceUnavailable(f"no topic {place[0]} with partition {place[1]}: topics create")
    first, end = reader.bounds([place])[place]
    from_s = clock.time_s() - window_s
    until_s = clock.monotonic_s() + READ_MAX_S
    while end > first and tail.records < RECORDS_MAX and clock.monotonic_s() < until_s:
        start = max(first, end - BLOCK)
        for line in reversed(read_whole_piece(reader, place, start, end)):
            tail.take(line)
        end = start
        if tail.oldest_s is not None and tail.oldest_s < from_s:
            return tail
    tail.is_whole = end <= first
    return tail


def standing(
    tail: Tail, inventory: Mapping[str, bytes], shards: Sequence[ShardStanding],
    problems: Iterable[str], configuration: Configuration, now_s: float, window_s: float,
) -> Standing:  # fmt: skip
    """What it amounts to.

    problems   that were found while reading
    """
    listed = _listed(inventory)
    expected = sorted(listed or tail.heard)
    looked_s = window_s if tail.oldest_s is None else min(now_s - tail.oldest_s, window_s)
    from_s = now_s - window_s
    heard = {node: at for node, at in tail.heard.items() if at >= from_s}
    frames = {key: one for key, one in tail.frames.items() if one[0] >= from_s}
    sources = _sources(frames, expected, now_s)
    nodes = _nodes(frames, heard, expected, [s.source for s in sources], now_s)
    pairs = len(expected) * len(sources)
    lacking = sum(len(node.missing) for node in nodes)
    ages = {kind: now_s - at_s for kind, at_s in tail.newest.items()}
    known = {key.removeprefix("sched/") for key in inventory if key.startswith("sched/")}
    made = Standing(
        at=now_s, problems=[], window_s=looked_s, records=tail.records,
        expected=len(expected), reporting=sum(node in heard for node in expected),
        silent=[node for node in expected if node not in heard],
        unlisted=sorted(set(heard) - known) if known else [],
        coverage=1.0 - lacking / pairs if pairs else None,
        beat_age_s=ages.get("beat"), allocation_age_s=ages.get("allocation"),
        listing_age_s=ages.get("listing"), sources=sources, nodes=nodes,
        off=_off(frames, tail), shards=list(shards),
    )  # fmt: skip
    told = [*problems, *_problems(made, tail, configuration)]
    return msgspec.structs.replace(made, problems=told)


def _listed(inventory: Mapping[str, bytes]) -> list[str]:
    """Nodes that the scheduler has not taken out."""
    nodes = []
    for key, value in inventory.items():
        if not key.startswith("sched/"):
            continue
        try:
            state = msgspec.json.decode(value, type=_Node).state.lower()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            state = ""
        if not any(word in state for word in _OUT):
            nodes.append(key.removeprefix("sched/"))
    return nodes


_Frames = Mapping[tuple[str, str], tuple[float, frozenset[str], frozenset[str]]]


def _sources(frames: _Frames, expected: Sequence[str], now_s: float) -> list[SourceStanding]:
    """Those that most of the reporting nodes send."""
    wanted, counts = set(expected), Counter[str]()
    newest: dict[str, float] = {}
    for (node, source), (at_s, _, _) in frames.items():
        newest[source] = max(at_s, newest.get(source, at_s))
        counts[source] += node in wanted
    reporting = len({node for node, _ in frames if node in wanted})
    return [
        SourceStanding(source, counts[source], len(wanted) - counts[source], now_s - newest[source])
        for source in sorted(newest)[:SOURCES_MAX]
        if counts[source] >= MOST_SHARE * reporting
    ]


def _nodes(
    frames: _Frames, heard: Mapping[str, float], expected: Sequence[str], sources: Sequence[str],
    now_s: float,
) -> list[NodeStanding]:  # fmt: skip
    """Those at which something is missing, the worst first."""
    usual = {source: _usual(frames, source) for source in sources}
    found = []
    for node in expected:
        missing = [source for source in sources if (node, source) not in frames]
        blind = [
            name
            for source in sources
            if (node, source) in frames
            for name in _blind(source, *frames[node, source][1:], usual[source])
        ]
        if missing or blind or node not in heard:
            age_s = now_s - heard[node] if node in heard else None
            found.append(NodeStanding(node, missing, blind, age_s))
    found.sort(key=lambda one: (-len(one.missing), -len(one.blind), one.node))
    return found


def _usual(frames: _Frames, source: str) -> frozenset[str]:
    """Metrics that most nodes send a value of."""
    sets = Counter(seen for (_, of), (_, seen, _) in frames.items() if of == source)
    counts = Counter[str]()
    for seen, nodes in sets.items():
        for name in seen:
            counts[name] += nodes
    most = METRIC_SHARE * sets.total()
    return frozenset(name for name, nodes in counts.items() if nodes >= most)


def _blind(
    source: str, seen: frozenset[str], null: frozenset[str], usual: frozenset[str]
) -> list[str]:
    if not seen and (null or usual):
        return [source]
    return sorted(usual - seen)[:BLIND_SHOWN]


def _off(frames: _Frames, tail: Tail) -> list[str]:
    """Of the kinds of devices that somebody measures."""
    seen = frozenset[str]().union(*(one[1] | one[2] for one in frames.values()))
    devices = {BY_NAME[name].device for name in seen if name in BY_NAME}
    needs = absence(seen, logged="event" in tail.newest).off
    return [need.off for need in needs if BY_NAME[need.metrics[0]].device in devices]


def _problems(made: Standing, tail: Tail, configuration: Configuration) -> list[str]:
    found = []
    if not tail.records:
        found.append("nothing in the log: nobody sends")
    beat_max_s = BEATS_MISSED * configuration.engine.ticks.beat_s
    if made.beat_age_s is None or made.beat_age_s > beat_max_s:
        found.append("no beat of late: the inventory poller is away, and time stands still")
    if made.listing_age_s is not None:
        if made.listing_age_s > 2.0 * configuration.inventory.listing_s:
            found.append(f"the newest whole listing is {made.listing_age_s:.0f} s old")
    elif tail.is_whole:
        found.append("no whole listing in the log: who runs where is not known")
    if made.silent:
        found.append(f"{len(made.silent)} of {made.expected} nodes are silent")
    for source in made.sources:
        lacking = source.missing - len(made.silent)
        if lacking > 0:
            found.append(f"{lacking} nodes that report send no {source.source}")
    blind = sum(bool(node.blind) for node in made.nodes)
    if blind:
        found.append(f"{blind} nodes lack metrics that the others send")
    return found + _lagging(made.shards)


def _lagging(shards: Iterable[ShardStanding]) -> list[str]:
    found = []
    for one in shards:
        if one.delay_s is not None and one.delay_s > DELAY_MAX_S:
            found.append(f"the worker is {one.delay_s:.0f} s behind in shard {one.shard}")
        if one.lag_retention_ratio is not None and one.lag_retention_ratio > RETENTION_MAX:
            found.append(f"shard {one.shard}: the log is deleted before the worker reads it, soon")
    return found


def read_worker(address: str, clock: Clock) -> list[ShardStanding]:
    """Every shard of the worker that serves its metrics at HOST:PORT. Raises SourceUnavailable."""
    url = f"http://{address}/metrics"
    try:
        endpoint = Endpoint(url, _METRICS_TIMEOUT_S, _METRICS_BYTES_MAX, clock)
        text = b"".join(endpoint.pieces()).decode("utf-8", "replace")
        families = list(text_string_to_metric_families(text))
    except (NodewardenError, ValueError) as error:
        raise SourceUnavailable(f"the worker at {address} tells nothing: {error}") from error
    values: dict[str, dict[str, float]] = {}
    for family in families:
        for sample in family.samples:
            key = _GAUGES.get(sample.name)
            if key is not None and "shard" in sample.labels:
                values.setdefault(sample.labels["shard"], {})[key] = sample.value
    return [ShardStanding(shard, **found) for shard, found in sorted(values.items())]


_GAUGES = {
    "nodewarden_stream_lag_records": "lag_records",
    "nodewarden_stream_delay_seconds": "delay_s",
    "nodewarden_stream_lag_retention_ratio": "lag_retention_ratio",
}
