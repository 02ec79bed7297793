"""A canary comes out as one finding, of use to nobody but its sender; nothing else is one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.canary import Canary
from detectors.registry import detectors
from telemetry.canary import Heard, canary, heard, is_canary
from telemetry.codec import decode, encode
from telemetry.records import Arrived, Event, Rejected
from telemetry.settings import EngineSettings
from tests.fakes import cluster
from tests.folding import folded, fresh, simulated
from tests.unit.test_shard import fold, lines, log, shard

NAME = "0123456789abcdef"
FAULTS = ("ecn@n003+60", "xid94@n005+120", "xid79@n006+300")


def record(at: float = 1_700_000_000.0, seq: int = 0, **changes: Any) -> Event:
    return msgspec.structs.replace(canary(NAME, at, 1.0, seq), **changes)


def with_canaries(of: tuple[Arrived, ...], every: int) -> tuple[Arrived, ...]:
    """The log with a canary before each `every`th record, once somebody has said the settings."""
    found: list[Arrived] = []
    for number, arrived in enumerate(of):
        if number and number % every == 0:
            sent = canary(f"{number:016x}", arrived.arrival, 1.0, number // every - 1)
            found.append(Arrived(len(found), arrived.arrival, sent))
        found.append(msgspec.structs.replace(arrived, offset=len(found)))
    return tuple(found)


def test_it_is_said_once_with_its_name_and_time_and_is_over_at_once() -> None:
    plain = [(at_s / 1000.0, decode(value or b"", "t")) for _, at_s, _, value in log()[:40]]
    at_s = plain[-1][0] + 1.0
    one = shard()
    fold(one, lines([(at, r) for at, r in plain if not isinstance(r, Rejected)]))
    number = one.offset

    said = fold(one, lines([(at_s, record(at_s))], number))

    assert [Heard(f"canary:{NAME}", at_s), None] == [heard(output.value) for output in said]
    found = [msgspec.json.decode(output.value) for output in said]
    assert [("open", 0), ("clear", 1)] == [(f["state"], f["rev"]) for f in found]
    assert {("evidence", "info", "", "")} == {
        (f["role"], f["severity"], f["node"], f["job"]) for f in found
    }
    assert [] == fold(one, lines([(at_s, record(at_s))], number + 1))  # a repeat is a duplicate
    assert [] == [f for f in one.fold.book.open_findings() if f.detector == "canary"]


@pytest.mark.parametrize("every", [7, 50])
def test_canaries_in_a_log_change_no_incident(every: int) -> None:
    plain = simulated(8, 15.0, FAULTS)
    _, without = folded(plain)
    engine, outcome = folded(with_canaries(plain, every))

    assert without.incidents
    assert without.incidents == outcome.incidents
    assert engine.counters.findings["canary"] == (len(plain) - 1) // every
    assert not any(e.detector == "canary" for i in outcome.incidents.values() for e in i.evidence)


def test_no_other_detector_says_anything_of_it() -> None:
    view = cluster(8)
    for detector in detectors(EngineSettings()):
        said = list(detector.on_event(record(), view, 1_700_000_001.0))
        assert bool(said) == isinstance(detector, Canary), detector.name


@pytest.mark.parametrize(
    "forged",
    [
        {"node": "n001"}, {"source": "training"}, {"source": "kernel"}, {"class_": "nccl"},
        {"type": "xid"}, {"job": "j1"}, {"severity": "critical"}, {"entity": ""},
        {"entity": "canary:short"}, {"entity": f"canary:{NAME}0"}, {"entity": f"canary:{NAME}\n"},
        {"text": "canary"}, {"code": 79}, {"pid": 1}, {"process": "python"}, {"kmsg_seq": 1},
        {"details": {"switch": "leaf1"}}, {"boot_id": "b"},
    ],
    ids=str,
)  # fmt: skip
def test_one_field_that_is_another_makes_it_none(forged: dict[str, Any]) -> None:
    event = record(**forged)

    assert is_canary(record())
    assert not is_canary(event)
    assert () == Canary().on_event(event, cluster(8), 1_700_000_001.0)


@given(node=st.text(min_size=1, max_size=20), text=st.text(max_size=40))
def test_what_a_node_says_is_never_one(node: str, text: str) -> None:
    assert not is_canary(record(node=node))
    assert not is_canary(record(node=node, source="training", text=text))


def test_it_is_the_same_after_the_wire_and_out_of_an_archive() -> None:
    sent = decode(encode(record()), "test")
    assert isinstance(sent, Event)
    assert is_canary(sent)
    assert is_canary(record(replayed=1_600_000_000.0))


def test_before_the_settings_it_is_rejected_as_every_record_is() -> None:
    engine = fresh()
    said = engine.step(Arrived(0, 1_700_000_000.0, record()))
    assert ([], 1) == (said.findings, engine.counters.rejected)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"null", b"\xff\xfe", b'{"detector":"canary"}', b'{"detector":"canary"',
        b'{"detector":"canary","state":"clear","node":"","entity":"canary:1","onset":1.0}',
        b'{"detector":"canary","state":"open","node":"n1","entity":"canary:1","onset":1.0}',
        b'{"detector":"zscore","text":"\\"detector\\":\\"canary\\"","state":"open"}',
        b'{"a":"' + b'[' * 5 + b'"detector":"canary"',
    ],
)  # fmt: skip
def test_other_findings_are_no_canarys(value: bytes | None) -> None:
    assert heard(value) is None
