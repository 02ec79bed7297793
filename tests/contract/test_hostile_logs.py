"""What the engine promises of any log, held against logs that are out to break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from streams.fold import SOURCES_MAX, Fold
from streams.snapshot import Snapshots, load
from telemetry.findings import ISOLATING, Finding, Incident
from telemetry.records import (
    Allocation,
    Arrived,
    Beat,
    Begin,
    End,
    Event,
    Frame,
    Header,
    Rejected,
    Settings,
    Steps,
)
from telemetry.settings import EngineSettings
from tests.folding import folded, fresh, numbered, simulated

Item = tuple[float, Any]
SICK = "n003"
LOG = simulated(8, 24.0, (f"ecn@{SICK}+300",))
START, END = LOG[0].arrival, LOG[-1].arrival
SETTINGS = next(a.record.settings for a in LOG if isinstance(a.record, Settings))
LISTING = next(a.record for a in LOG if isinstance(a.record, Allocation))


def with_more(*items: Item, log: Sequence[Arrived] = LOG) -> tuple[Arrived, ...]:
    """The log with further records at their times."""
    known: list[Item] = [(a.arrival, a.record) for a in log]
    return numbered(sorted([*known, *items], key=lambda item: item[0]))


def settings_at(arrival: float, settings: EngineSettings, seq: int = 1) -> Item:
    """A change of the settings; streams of their own, so that nothing is a repeat."""
    return arrival, Settings(
        at=arrival, node="", source="admin", started_at=1.0, seq=seq, digest=f"other-{seq}",
        engine_version="0", settings=settings,
    )  # fmt: skip


def state_at(arrival: float, node: str, state: str, seq: int) -> Item:
    """A change of what the scheduler says of a node."""
    nodes = [replace(info, state=state) for info in LISTING.nodes if info.name == node]
    return arrival, Allocation(
        at=arrival, node="", source="admin", started_at=1.0, seq=seq, nodes=nodes
    )


def said_by(log: Iterable[Arrived], fold: Fold) -> tuple[list[Finding], list[Incident]]:
    """Everything, each revision."""
    findings: list[Finding] = []
    incidents: list[Incident] = []
    for arrived in log:
        said = fold.step(arrived)
        findings += said.findings
        incidents += said.incidents
    assert fold.counters.conserved(), fold.counters
    return findings, incidents


def assert_never_doubled(findings: list[Finding], incidents: list[Incident]) -> None:
    """One id never has two contents at one revision."""
    for told in (findings, incidents):
        known: dict[tuple[str, int], object] = {}
        for one in told:
            assert known.setdefault((one.id, one.rev), one) == one, one


def cut_and_restored(log: Sequence[Arrived], cut: int) -> tuple[list[Finding], list[Incident]]:
    """What the log says when its fold is restored from a snapshot in the middle."""
    fold = fresh()
    findings, incidents = said_by(log[:cut], fold)
    found = load("main", dict(Snapshots("main").take(fold)), fresh)
    assert found is not None
    more_findings, more_incidents = said_by(log[cut:], found[0])
    return findings + more_findings, incidents + more_incidents


def frame_of(node: str, arrival: float, **changes: Any) -> Frame:
    """The node's first GPU frame, said anew."""
    first = next(
        a.record
        for a in LOG
        if isinstance(a.record, Frame) and a.record.node == node and a.record.source == "gpu"
    )
    return replace(first, at=arrival, sent_at=arrival, started_at=2.0, **changes)


# -- records that nobody foresaw


def test_a_source_that_no_catalogue_knows_closes_its_ticks() -> None:
    items = [
        (START + 10.0 * i, frame_of("n001", START + 10.0 * i, source="weird", seq=i))
        for i in range(1, 60)
    ]
    fold, outcome = folded(with_more(*items))
    assert fold.sources["weird"].next is not None
    assert [i.verdict.targets for i in outcome.sorted_incidents()] == [[SICK]]


def test_sources_are_bounded_and_what_is_beyond_is_rejected() -> None:
    items = [
        (END - 1.0, frame_of("n001", END - 1.0, source=f"s{i}", seq=0)) for i in range(SOURCES_MAX)
    ]
    fold, _ = folded(with_more(*items))
    assert len(fold.sources) == SOURCES_MAX
    assert fold.counters.reasons == {f"more than {SOURCES_MAX} sources": 2}


@pytest.mark.parametrize("value", [1e308, -1e308, 1e19 * 1e10])
def test_values_without_measure_are_junk_and_no_warning(value: float) -> None:
    def huge(arrived: Arrived) -> Item:
        record = arrived.record
        if isinstance(record, Frame) and record.node == "n005":
            metrics = {n: [value] * len(v) for n, v in record.metrics.items()}
            return arrived.arrival, replace(record, metrics=metrics)
        return arrived.arrival, record

    fold, outcome = folded(numbered(map(huge, LOG)))
    assert fold.counters.junk > 0
    assert [i.verdict.targets for i in outcome.sorted_incidents()] == [[SICK]]


def test_a_replaced_part_takes_the_slot_of_one_that_is_gone() -> None:
    """Names that change for ever neither grow without bound nor mute the node."""

    def renamed(arrived: Arrived) -> Item:
        record = arrived.record
        if isinstance(record, Frame) and record.node == "n005" and record.source == "gpu":
            gpus = [f"{name}-{int(arrived.arrival // 60)}" for name in record.entities["gpu"]]
            return arrived.arrival, replace(record, entities={**record.entities, "gpu": gpus})
        return arrived.arrival, record

    fold, outcome = folded(numbered(map(renamed, LOG)))
    assert fold.counters.rejected == 0
    assert [i.verdict.targets for i in outcome.sorted_incidents()] == [[SICK]]


def test_a_rejected_frame_makes_nobody_join() -> None:
    bad = frame_of("n001", START + 100.0, seq=0, entities={"gpu": ["a", "a"]})
    fold, _ = folded(with_more((START + 100.0, replace(bad, node="n099"))))
    assert fold.counters.rejected == 1
    assert "n099" not in fold.sources["gpu"].slot


def test_a_rejected_first_frame_changes_nothing_after_a_restore() -> None:
    def broken_at_first(arrived: Arrived) -> Item:
        record = arrived.record
        if isinstance(record, Frame) and record.source == "gpu" and arrived.arrival < START + 60.0:
            return arrived.arrival, replace(record, entities={})
        if isinstance(record, Frame) and record.node == "n006" and arrived.arrival > START + 400.0:
            return END, replace(record, spooled=True)
        return arrived.arrival, record

    log = numbered(sorted(map(broken_at_first, LOG), key=lambda item: item[0]))
    assert cut_and_restored(log, len(log) // 3) == said_by(log, fresh())


def test_a_time_ahead_of_the_log_stretches_no_summary() -> None:
    far = frame_of("n001", END + 1e6, seq=0, source="gpu")
    fold, _ = folded(with_more((END - 1.0, replace(far, sent_at=None))))
    assert fold.counters.last_at is not None
    assert fold.counters.last_at <= END + 60.0


# -- pieces of history


def later(arrived: Arrived) -> Item:
    """The record as of some days later."""
    record = arrived.record
    assert not isinstance(record, Rejected)
    return arrived.arrival + 1e6, replace(record, at=record.at + 1e6)


def test_a_begin_that_is_refused_forgets_nothing() -> None:
    begin = Begin(at=END, node="", source="import", started_at=0.0, seq=0, replayed=START)
    fold, outcome = folded(with_more((START + 1_200.0, begin)))
    assert fold.counters.rejected == 1
    assert [i.verdict.targets for i in outcome.sorted_incidents()] == [[SICK]]


def test_an_end_that_is_refused_ends_nothing() -> None:
    end = End(at=END, node="", source="import", started_at=0.0, seq=9, replayed=END)
    fold, _ = folded(with_more((END - 60.0, end)))
    assert fold.coverage is None
    assert not fold.ended


def test_an_import_after_one_that_broke_off_begins_anew() -> None:
    """Every import counts from 0: the number alone does not make its `Begin` a repeat."""
    first = Begin(at=START + 1e6, node="", source="capture", started_at=0.0, seq=0, name="newer")
    second = replace(first, at=START, name="older")
    moved = [later(a) for a in LOG[:500]]
    items = [(START + 1e6, first), *moved, (START, second), *((a.arrival, a.record) for a in LOG)]

    fold = fresh()
    _, incidents = said_by(numbered(items), fold)

    assert fold.now == END
    assert incidents[-1].verdict.targets == [SICK]
    assert fold.counters.duplicate == 0


def test_each_piece_of_history_has_its_own_productive_time() -> None:
    """An older import after a newer one was not idle for the time between them."""
    begin = Begin(at=START + 1e6, node="", source="capture", started_at=0.0, seq=0, name="newer")
    over_s = END + 1e6 + 900.0
    end = End(at=over_s, node="", source="capture", started_at=0.0, seq=999_999)
    moved = [later(a) for a in LOG]
    again = [(START, replace(begin, at=START)), *((a.arrival, a.record) for a in LOG)]
    alone, _ = folded(LOG)
    fold, _ = folded(numbered([(START + 1e6, begin), *moved, (over_s, end), *again]))
    assert fold.progress.ettr(fold.last_at) == alone.progress.ettr(alone.last_at)


@pytest.mark.parametrize("what", ["another piece of history", "another interval"])
def test_snapshots_begin_anew_with_sources_that_were_made_anew(what: str) -> None:
    """Nothing of the windows before is in them, though the sources have their old names."""
    begin = Begin(at=START, node="", source="capture", started_at=0.0, seq=0, name="again")
    others = [(a.arrival, replace_node(a)) for a in LOG]
    slower = replace(SETTINGS.ticks, interval_s={"gpu": 30.0, "nic": 60.0})
    log = {
        "another piece of history": numbered(
            [*((a.arrival, a.record) for a in LOG[:3_000]), (START, begin), *others]
        ),
        "another interval": with_more(
            settings_at(START + 500.0, replace(SETTINGS, ticks=slower)),
            log=[a for a in LOG if a.arrival < START + 30.0 or not isinstance(a.record, Settings)],
        ),
    }[what]
    change = 3_000 if what == "another piece of history" else len(log) // 3
    store: dict[str, bytes] = {}
    fold, snapshots = fresh(), Snapshots("main")
    findings, incidents = said_by(log[:change], fold)
    store.update(snapshots.take(fold))
    for cut in (change + 1_000, change + 2_000):
        more = said_by(log[fold.offset + 1 : cut], fold)
        findings, incidents = findings + more[0], incidents + more[1]
        store.update(snapshots.take(fold))

    found = load("main", store, fresh)
    assert found is not None
    assert found[0].offset == fold.offset
    more = said_by(log[fold.offset + 1 :], found[0])
    assert (findings + more[0], incidents + more[1]) == said_by(log, fresh())


def replace_node(arrived: Arrived) -> Any:
    """The record, from a node of another name."""
    record = arrived.record
    return replace(record, node=f"x-{record.node}") if isinstance(record, Frame) else record


# -- changes of the settings


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, silence=replace(s.silence, patience_ticks=1, patience_s=20.0)),
        lambda s: replace(s, ticks=replace(s.ticks, skew_min_s=0.01)),
        lambda s: replace(s, ticks=replace(s.ticks, interval_s={"gpu": 30.0, "nic": 60.0})),
        lambda s: replace(s, zscore=replace(s.zscore, pooled=True, window_s=300.0)),
        lambda s: replace(s, cluster="another"),
    ],
    ids=["patience", "skew", "interval", "pooled", "cluster"],
)
def test_a_restored_fold_follows_changed_settings_alike(
    change: Callable[[EngineSettings], EngineSettings],
) -> None:
    log = with_more(settings_at(START + 500.0, change(SETTINGS)))
    cut = next(i for i, a in enumerate(log) if a.arrival > START + 520.0)
    assert cut_and_restored(log, cut) == said_by(log, fresh())


def test_a_longer_interval_makes_nobody_silent() -> None:
    """Patience comes from the intervals that are in force."""
    slower = replace(SETTINGS.ticks, interval_s={"gpu": 120.0, "nic": 120.0})
    change = settings_at(START + 300.0, replace(SETTINGS, ticks=slower))

    def every_two_minutes(item: Arrived) -> bool:
        if isinstance(item.record, Settings):
            return item.arrival < START + 300.0
        rare = not isinstance(item.record, Frame | Steps | Event) or item.record.seq % 8 == 0
        return item.arrival < START + 300.0 or rare

    fold, _ = folded(with_more(change, log=[a for a in LOG if every_two_minutes(a)]))
    assert set(fold.inventory.patience.values()) == {3 * 120.0}


def test_findings_of_a_detector_that_is_switched_off_are_cleared() -> None:
    off = replace(SETTINGS, straggler=replace(SETTINGS.straggler, enabled=False))
    log = with_more(settings_at(END - 60.0, off))
    findings, incidents = said_by(log, fresh())
    slow = [f for f in findings if f.metric == "step_time_s"]
    assert slow[-1].state == "clear"
    assert_never_doubled(findings, incidents)


def test_under_another_cluster_name_everything_ends_and_begins_anew() -> None:
    log = with_more(settings_at(END - 60.0, replace(SETTINGS, cluster="another")))
    findings, incidents = said_by(log, fresh())
    newest = {incident.id: incident for incident in incidents}
    assert all(incident.closed_at is not None for incident in newest.values())
    open_now = {f.id: f for f in findings}
    assert all(f.state == "clear" for f in open_now.values() if f.at <= END - 60.0)


# -- the life of findings and incidents


def test_a_silent_node_that_was_drained_for_a_while_is_a_new_finding() -> None:
    """Its onset is what it was; one id never has two contents at one revision."""
    log = simulated(8, 24.0, ("agent-dead@n004+300",))
    times = ((650.0, "DRAIN"), (900.0, "IDLE"))
    items = [state_at(START + after, "n004", state, i) for i, (after, state) in enumerate(times)]
    findings, incidents = said_by(with_more(*items, log=log), fresh())
    silent = [f for f in findings if f.detector == "silence" and f.state == "open"]
    assert len({f.id for f in silent}) == len(silent) == 2
    assert_never_doubled(findings, incidents)


def test_an_incident_ends_when_the_node_that_it_isolated_is_gone() -> None:
    """A node that reports no more has no value that could be normal again."""
    log = simulated(8, 60.0, (f"ecn@{SICK}+300",))
    job = LISTING.jobs[0]
    gone_s = START + 1_500.0
    kept = [held for held in job.nodes if held.name != SICK]
    change = Allocation(
        at=gone_s, node="", source="admin", started_at=1.0, seq=9, jobs=[replace(job, nodes=kept)]
    )

    def after(item: Arrived) -> Item | None:
        record = item.record
        if item.arrival < gone_s or isinstance(record, Allocation):
            return None if item.arrival >= gone_s else (item.arrival, record)
        if isinstance(record, Header) and record.node == SICK:
            return None
        if isinstance(record, Steps):
            times = [5.2 for _ in record.step_time_s]
            return item.arrival, replace(record, step_time_s=times)
        return item.arrival, record

    told = [found for item in log if (found := after(item)) is not None]
    items = numbered(sorted([*told, (gone_s, change)], key=lambda item: item[0]))
    _, incidents = said_by(items, fresh())

    isolated = [i for i in incidents if i.verdict.action in ISOLATING]
    assert isolated[-1].verdict.targets == [SICK]
    assert isolated[-1].closed_at is not None


def test_a_kernel_line_that_is_read_again_is_a_repeat() -> None:
    """An agent that starts anew reads the kernel's ring from its beginning, in a new stream."""
    log = simulated(8, 24.0, ("xid79@n002+300",))
    lines = [a.record for a in log if isinstance(a.record, Event) and a.record.node == "n002"]
    assert lines
    again = [
        (START + 900.0 + i, replace(line, started_at=START + 890.0, seq=i))
        for i, line in enumerate(lines)
    ]
    once, said_once = folded(log)
    twice, said_twice = folded(with_more(*again, log=log))
    assert twice.counters.duplicate - once.counters.duplicate == len(lines)
    assert said_twice.findings == said_once.findings


# -- a gap of the log

BIG = simulated(16, 30.0, (f"ecn@{SICK}+240",))
AWAY_S, BACK_S = BIG[0].arrival + 700.0, BIG[0].arrival + 1_000.0


def drained(nodes: frozenset[str], drain_s: float) -> tuple[Arrived, ...]:
    """The log when its broker was away: `nodes` drain their spools, the others' frames are lost."""

    def spooled(item: Arrived) -> Item | None:
        record = item.record
        assert not isinstance(record, Rejected)
        if not AWAY_S <= item.arrival < BACK_S:
            return item.arrival, record
        if isinstance(record, Beat) or (record.node and record.node not in nodes):
            return None
        share = (item.arrival - AWAY_S) / (BACK_S - AWAY_S)
        return BACK_S + share * drain_s, replace(record, spooled=True)

    told = [found for item in BIG if (found := spooled(item)) is not None]
    return numbered(sorted(told, key=lambda item: item[0]))


ALL = frozenset(a.record.node for a in BIG if isinstance(a.record, Frame))


@pytest.mark.parametrize("drain_s", [5.0, 60.0, 150.0, 240.0])
def test_ticks_wait_while_most_nodes_drain_their_spools(drain_s: float) -> None:
    fold, outcome = folded(drained(ALL, drain_s))

    assert fold.counters.late == 0
    assert all(source.hold_until < 0.0 for source in fold.sources.values())
    assert [i.verdict.targets for i in outcome.sorted_incidents()] == [[SICK]]
    assert outcome.sorted_incidents()[0].verdict.at <= BACK_S + drain_s + 240.0


def test_nobody_waits_for_the_spool_of_one_node() -> None:
    fold, _ = folded(drained(frozenset({"n007"}), 60.0))
    assert fold.counters.late > 0
    assert all(source.hold_until < 0.0 for source in fold.sources.values())


# -- silence beside a job that stands still for another reason


@pytest.mark.parametrize("silent_at", [450, 700])
def test_nobody_is_isolated_for_falling_silent_after_the_job_died(silent_at: int) -> None:
    log = simulated(16, 26.0, ("usercode@n009+416", f"agent-dead@n004+{silent_at}"))
    _, outcome = folded(log)
    assert outcome.sorted_incidents()
    assert [i.verdict.targets for i in outcome.sorted_incidents() if i.verdict.targets] == []
