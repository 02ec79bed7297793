"""The fakes keep the promises of their ports."""

from __future__ import annotations

import pytest

from telemetry.errors import PublishError
from telemetry.ports import Clock, Publisher, StateStore
from telemetry.testing import ManualClock, MemoryPublisher, MemoryStateStore, Published


def test_time_moves_when_told_and_a_correction_is_no_duration() -> None:
    clock = ManualClock(100.0)
    port: Clock = clock
    port.sleep(5.0)
    port.sleep(-1.0)
    clock.set(50.0)
    assert (port.time_s(), port.monotonic_s()) == (50.0, 5.0)


def test_published_records_are_kept_in_order() -> None:
    fake = MemoryPublisher()
    port: Publisher = fake
    port.publish("a", b"1", key=b"k", partition=0, headers=[("kind", b"beat")])
    port.publish("b", None)
    port.flush()
    assert fake.of("a") == [Published("a", b"1", b"k", 0, (("kind", b"beat"),))]
    assert fake.flushed == 2


def test_a_refusal_is_an_error_and_passes() -> None:
    fake = MemoryPublisher()
    fake.refuse(1)
    with pytest.raises(PublishError):
        fake.publish("a", b"1")
    fake.publish("a", b"2")
    assert [record.value for record in fake.records] == [b"2"]


def test_state_keeps_the_latest_value_of_each_key() -> None:
    fake = MemoryStateStore()
    store: StateStore = fake
    for key, value in (("m/b", b"1"), ("m/a", b"2"), ("m/b", b"3"), ("n/a", b"4"), ("m/c", b"5"),
                       ("m/c", b"")):  # fmt: skip
        store.put(key, value)
    assert list(store.get_all("m/").items()) == [("m/a", b"2"), ("m/b", b"3")]
    assert len(fake.writes) == 6
