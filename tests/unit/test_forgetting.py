"""Who is gone for good is forgotten; who is listed, or spoke lately, is not."""

from __future__ import annotations

import msgspec
import pytest

from telemetry.records import Allocation, Arrived, Beat, Frame, NodeInfo, Settings
from telemetry.settings import EngineSettings
from tests.folding import fresh

START_S = 1_790_000_000.0
DAY_S = 86_400.0


def arrived(record: Frame | Beat | Settings | Allocation, at_s: float) -> Arrived:
    return Arrived(0, at_s, msgspec.structs.replace(record, at=at_s))


def frame(node: str, seq: int) -> Frame:
    return Frame(
        at=0.0, node=node, source="gpu", started_at=1.0, seq=seq,
        entities={"gpu": ["gpu:a"]}, metrics={"gpu_temperature_celsius": [50.0]},
    )  # fmt: skip


def settings() -> Settings:
    return Settings(
        at=0.0, node="", source="", started_at=0.0, seq=0, digest="d", engine_version="",
        settings=EngineSettings(),
    )  # fmt: skip


def listing(*names: str) -> Allocation:
    return Allocation(
        at=0.0, node="", source="inventory", started_at=0.0, seq=0, listing="l", last=True, count=1,
        nodes=[NodeInfo(name=name) for name in names],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "silent_s", "forgotten"),
    [
        (("n1",), 3_600.0, True),
        (("n1",), 1_000.0, False),
        (("n1", "gone"), 2.0 * DAY_S, False),
        ((), 3_600.0, False),
        ((), DAY_S + 1_800.0, True),
    ],
)
def test_silence_and_listings_decide_who_is_forgotten(
    listed: tuple[str, ...], silent_s: float, forgotten: bool
) -> None:
    fold = fresh()
    fold.step(arrived(settings(), START_S))
    if listed:
        fold.step(arrived(listing(*listed), START_S))
    for seq in range(4):
        for node in ("gone", "n1"):
            fold.step(arrived(frame(node, seq), START_S + 10.0 * seq))
    steps = 40
    for seq in range(4, 4 + steps):
        fold.step(arrived(frame("n1", seq), START_S + 30.0 + silent_s * (seq - 3) / steps))
    known = set(fold.sources["gpu"].names)
    assert ("gone" not in known) is forgotten
    assert "n1" in known
    assert ("gone" in fold.inventory.known()) is (not forgotten)
    assert fold.counters.conserved()


def test_a_forgotten_node_that_comes_back_joins_anew() -> None:
    fold = fresh()
    fold.step(arrived(settings(), START_S))
    fold.step(arrived(listing("n1"), START_S))
    fold.step(arrived(frame("a", 0), START_S))
    for seq in range(100):
        fold.step(arrived(frame("n1", seq), START_S + 60.0 * seq))
    assert fold.sources["gpu"].names == ["n1"]
    end_s = START_S + 6_000.0
    for seq in range(100, 104):
        fold.step(arrived(frame("a", seq), end_s + 10.0 * seq))
        fold.step(arrived(frame("n1", seq), end_s + 10.0 * seq))
    assert fold.sources["gpu"].names == ["a", "n1"]
    assert fold.counters.rejected == 0
