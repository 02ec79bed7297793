"""A worker tells each live shard its settings once, and again when they change."""

from __future__ import annotations

import msgspec

from actions.policy import verdict
from streams.live.announce import Announcer
from streams.shard import Shard
from telemetry.records import Settings
from telemetry.settings import Configuration, EngineSettings, ZscoreSettings

AT = 1.79e9


def configuration(sigmas: float) -> Configuration:
    return Configuration(engine=EngineSettings(zscore=ZscoreSettings(sigmas=sigmas)))


def announcer(sigmas: float) -> Announcer:
    return Announcer(configuration(sigmas), "w0", "1.0", AT)


def run_with(shard: Shard, record: Settings) -> None:
    """The record came by."""
    shard.fold.adopt_settings(record.settings, record.digest)
    shard.fold.ready = True


def test_a_shard_is_told_once_and_one_that_runs_so_already_is_not() -> None:
    shard = Shard("main", "live", verdict, 0)
    first = announcer(2.0).record(shard, AT)
    assert first is not None
    assert first.settings.shard == "main"
    run_with(shard, first)

    again = announcer(2.0)
    assert again.record(shard, AT) is None
    # Another worker with another file said so later: it has its way.
    run_with(shard, msgspec.structs.replace(first, digest="another"))
    assert again.record(shard, AT) is None


def test_a_history_shard_is_told_nothing_its_pieces_say_it() -> None:
    assert announcer(2.0).record(Shard("history", "history", verdict, 1), AT) is None


def test_settings_changed_back_before_the_change_took_force_are_told_again() -> None:
    shard = Shard("main", "live", verdict, 0)
    ours = announcer(2.0)
    first = ours.record(shard, AT)
    assert first is not None
    run_with(shard, first)

    ours.adopt(configuration(3.0))
    changed = ours.record(shard, AT + 1.0)
    ours.adopt(configuration(2.0))
    back = ours.record(shard, AT + 2.0)

    assert changed is not None
    assert back is not None
    assert (changed.seq, back.seq) == (1, 2)
    assert back.digest == first.digest
