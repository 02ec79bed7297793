"""A fold that was cut, restored from its published snapshot and continued says the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.replay import Outcome, drive
from streams.snapshot import Snapshots, load
from telemetry.codec import encode
from telemetry.records import Arrived, Rejected
from tests.folding import folded, fresh, printed, simulated, with_snapshots

LOG = simulated(8, 22.0, ("ecn@n003+300", "xid13@n005+600"))
WHOLE = printed(*folded(LOG))


@settings(max_examples=12, deadline=None)
@given(cut=st.integers(1, len(LOG) - 1), every=st.integers(150, 900))
def test_a_cut_anywhere_changes_no_byte(cut: int, every: int) -> None:
    store: dict[str, bytes] = {}
    outcome = Outcome()
    with_snapshots(LOG[:cut], every, store, outcome)

    found = load("main", store, fresh)
    fold = fresh() if found is None else found[0]
    drive(LOG[fold.offset + 1 :], fold, outcome)

    assert (found is None) == (cut < every)
    assert printed(fold, outcome) == WHOLE


@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, len(LOG) - 1), min_size=2, max_size=4).map(sorted))
def test_many_cuts_change_no_byte(cuts: list[int]) -> None:
    """Each life goes on from the newest snapshot and writes its own."""
    store: dict[str, bytes] = {}
    outcome = Outcome()
    for cut in [*cuts, len(LOG)]:
        found = load("main", store, fresh)
        fold, snapshots = (fresh(), Snapshots("main")) if found is None else found
        for arrived in LOG[fold.offset + 1 : cut]:
            outcome.take(fold.step(arrived))
            if arrived.offset % 211 == 0:
                store.update(snapshots.take(fold))

    assert printed(fold, outcome) == WHOLE


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_snapshot_torn_at_any_chunk_falls_back_to_the_one_before(data: st.DataObject) -> None:
    store: dict[str, bytes] = {}
    outcome = Outcome()
    cut = data.draw(st.integers(900, len(LOG) - 1))
    fold = with_snapshots(LOG[:cut], 400, store, outcome)
    before = load("main", store, fresh)
    assert before is not None
    snapshots = before[1]
    puts = list(snapshots.take(fold))
    kept = data.draw(st.integers(0, len(puts) - 1))
    store.update(puts[:kept])
    if kept < len(puts):
        key, value = puts[kept]
        store[key] = value[: data.draw(st.integers(0, len(value) - 1))]

    found = load("main", store, fresh)

    assert found is not None
    assert found[0].offset == before[0].offset
    drive(LOG[found[0].offset + 1 :], found[0], outcome)
    assert printed(found[0], outcome) == WHOLE


def test_a_snapshot_restores_in_a_new_process(tmp_path: Path) -> None:
    store: dict[str, bytes] = {}
    outcome = Outcome()
    cut = 2 * len(LOG) // 3
    with_snapshots(LOG[:cut], 500, store, outcome)
    (tmp_path / "store").write_bytes(msgspec.msgpack.encode(store))
    said = (list(outcome.incidents.values()), list(outcome.findings.values()))
    (tmp_path / "said").write_bytes(msgspec.msgpack.encode(said))
    lines = [msgspec.json.encode((a.offset, a.arrival, _text(a))) for a in LOG]
    (tmp_path / "log").write_bytes(b"\n".join(lines))

    done = subprocess.run(
        [sys.executable, "-m", "tests.continue_fold", str(tmp_path)],
        capture_output=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert json.loads(done.stdout) == json.loads(WHOLE)
    assert done.stdout == WHOLE


def _text(arrived: Arrived) -> str:
    assert not isinstance(arrived.record, Rejected)
    return encode(arrived.record).decode()
