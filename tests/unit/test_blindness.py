"""Whom a shard does not see: nodes that are silent, and sources that some nodes stopped sending."""

from __future__ import annotations

from collections.abc import Iterable

from streams.blindness import Blindness, blindness
from streams.fold import Fold
from telemetry.records import Allocation, Arrived, Beat, Frame, NodeInfo, Record, Settings
from telemetry.settings import EngineSettings, SilenceSettings, TickSettings, settings_digest
from tests.folding import fresh

AT = 1_790_000_000.0
ENGINE = EngineSettings(
    ticks=TickSettings(interval_s={"gpu": 10.0, "host": 60.0}),
    silence=SilenceSettings(patience_s=60.0, patience_ticks=3),
)
FRAMES: dict[str, tuple[dict[str, list[str]], dict[str, list[float | None]]]] = {
    "gpu": ({"gpu": ["GPU-1"]}, {"gpu_temperature_celsius": [50.0]}),
    "host": ({"node": ["node"]}, {"host_load1": [1.0]}),
}


class Site:
    """A live shard that is told of seconds."""

    def __init__(self, *nodes: NodeInfo) -> None:
        self.fold: Fold = fresh()
        self._offset = 0
        said = Settings(
            at=AT, node="", source="engine", started_at=AT, seq=0, engine_version="1",
            digest=settings_digest(ENGINE), settings=ENGINE,
        )  # fmt: skip
        self._take(AT, said)
        self.list(*nodes)

    def list(self, *nodes: NodeInfo) -> None:
        self._take(
            AT,
            Allocation(
                at=AT, node="", source="inventory", started_at=AT, seq=self._offset,
                nodes=list(nodes), listing=str(self._offset), last=True, count=1,
            ),
        )  # fmt: skip

    def run(self, start: int, end: int, sends: Iterable[tuple[str, str]]) -> Blindness:
        """Frames of these (node, source) at their intervals, and beats."""
        for second in range(start, end, 5):
            at = AT + second
            for node, source in sends:
                if second % ENGINE.ticks.interval_s[source] == 0:
                    entities, metrics = FRAMES[source]
                    values = {name: list(column) for name, column in metrics.items()}
                    self._take(
                        at,
                        Frame(
                            at=at, node=node, source=source, started_at=AT, seq=second,
                            entities=entities, metrics=values,
                        ),
                    )  # fmt: skip
            beat = Beat(at=at, node="", source="beat", started_at=AT, seq=self._offset)
            self._take(at, beat)
        return blindness(self.fold)

    def _take(self, at: float, record: Record) -> None:
        self.fold.step(Arrived(self._offset, at, record))
        self._offset += 1


BOTH = [(node, source) for node in ("a", "b") for source in ("gpu", "host")]
LISTED = [NodeInfo(name="a"), NodeInfo(name="b")]


def test_whoever_sends_is_seen() -> None:
    assert Blindness(2, 0, {"gpu": (2, 0), "host": (2, 0)}) == Site(*LISTED).run(0, 300, BOTH)


def test_before_anybody_sent_the_listed_are_blind_and_no_source_is_named() -> None:
    assert Blindness(2, 2, {}) == Site(*LISTED).run(0, 300, [])


def test_a_source_is_missing_after_the_patience_and_not_before() -> None:
    site = Site(*LISTED)
    site.run(0, 300, BOTH)
    rest = [pair for pair in BOTH if pair != ("b", "gpu")]

    assert {"gpu": (2, 0), "host": (2, 0)} == site.run(300, 355, rest).sources
    assert Blindness(2, 0, {"gpu": (2, 1), "host": (2, 0)}) == site.run(355, 400, rest)
    assert {"gpu": (2, 0), "host": (2, 0)} == site.run(400, 500, BOTH).sources


def test_a_slow_source_has_patience_of_its_own_interval() -> None:
    site = Site(*LISTED)
    site.run(0, 300, BOTH)
    rest = [pair for pair in BOTH if pair[1] == "gpu"]

    assert (2, 0) == site.run(300, 420, rest).sources["host"]
    assert (2, 2) == site.run(420, 600, rest).sources["host"]


def test_a_node_that_never_sends_a_source_is_not_missed_there() -> None:
    rest = [pair for pair in BOTH if pair != ("b", "gpu")]
    assert Blindness(2, 0, {"gpu": (1, 0), "host": (2, 0)}) == Site(*LISTED).run(0, 300, rest)


def test_a_node_that_is_drained_is_expected_nowhere() -> None:
    site = Site(*LISTED)
    site.run(0, 300, BOTH)
    site.list(NodeInfo(name="a"), NodeInfo(name="b", state="drained"))
    rest = [pair for pair in BOTH if pair[0] == "a"]

    assert Blindness(1, 0, {"gpu": (1, 0), "host": (1, 0)}) == site.run(300, 600, rest)


def test_a_silent_node_is_blind_in_all_it_sent() -> None:
    site = Site(*LISTED)
    site.run(0, 300, BOTH)
    rest = [pair for pair in BOTH if pair[0] == "a"]

    assert Blindness(2, 1, {"gpu": (2, 1), "host": (2, 1)}) == site.run(300, 800, rest)
