"""New settings under a running fold: thresholds change under the state, intervals drop windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from detectors.zscore import POOLED
from telemetry.settings import EngineSettings

if TYPE_CHECKING:
    from streams.fold import Fold
    from telemetry.findings import Finding, Incident
    from telemetry.records import Settings


def adopt(
    fold: Fold, record: Settings, findings: list[Finding], incidents: list[Incident]
) -> None:  # fmt: skip
    """The settings take force; what ends with the old ones goes to `findings` and `incidents`."""
    if record.digest == fold.digest and fold.ready:
        return
    states = {d.name: _plain(d.snapshot()) for d in fold.detectors}
    book, story = fold.book, _plain(fold.correlator.snapshot())
    policy = fold.settings.policy
    cluster_same = record.settings.cluster == fold.settings.cluster
    if fold.ready and not cluster_same:
        # Under another name everything has other ids: what is open can only end here.
        findings += fold.book.retire(frozenset(), fold.now)
        incidents += fold.judge.close_all(fold.now)
    windows_same = _window_settings(record.settings) == _window_settings(fold.settings)
    fold.adopt_settings(record.settings, record.digest)
    if fold.ready and cluster_same:
        fold.book = book
        fold.correlator.restore(story)
        for detector in fold.detectors:
            if detector.name in states:
                detector.restore(states[detector.name])
        fold.correlate(fold.book.retire(_speakers(fold), fold.now), findings, incidents)
        if record.settings.policy != policy:
            incidents += fold.judge.reconsider(record.settings.policy, fold.now)
    _renew_sources(fold, windows_same)
    fold.look_at_due()
    fold.ready = True


def _renew_sources(fold: Fold, windows_same: bool) -> None:
    """A source whose windows no longer fit begins anew."""
    rules = fold.settings.ticks
    for name, source in list(fold.sources.items()):
        interval_s = rules.interval_s.get(name, rules.interval_default_s)
        if not windows_same or interval_s != source.interval_s:
            del fold.sources[name]
            for detector in fold.detectors:
                detector.reset(name)
    fold.inventory.patience.clear()
    for source in fold.sources.values():
        for node in source.names:
            fold.be_patient(node, source.interval_s)


def _speakers(fold: Fold) -> frozenset[str]:
    """The names under which the detectors that run say findings."""
    names = {detector.name for detector in fold.detectors}
    pooled = fold.settings.zscore.enabled and fold.settings.zscore.pooled
    return frozenset(names | {POOLED} if pooled else names)


def _plain(state: object) -> object:
    """Saved state as it comes back from a snapshot."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def _window_settings(settings: EngineSettings) -> tuple[object, ...]:
    """What decides the shape and the content of windows."""
    z = settings.zscore
    return (settings.ticks, z.window_s, z.sigmas, z.group_min)
