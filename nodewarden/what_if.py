"""The same past under two settings, folded side by side in one reading; and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from actions.policy import verdict
from console.what_if import Difference, Field, SettingDifference, WhatIf
from evaluation.scoring import Score
from nodewarden.logs import Log, between
from nodewarden.replaying import EVERY, Replayed, incident_object, notes_of, nothing_read
from nodewarden.settings_file import leaves
from streams.exhibits import Exhibits
from streams.fold import Fold
from streams.replay import Outcome, summarize
from telemetry.findings import Incident, Verdict
from telemetry.records import Arrived, Settings
from telemetry.settings import EngineSettings, settings_digest

AS_RECORDED = "the log's own settings"


@dataclass
class Side:
    """One of the two: its settings, None for those that the log recorded, and what they say."""

    rules: EngineSettings | None
    folds: list[Fold] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def take(self, arrived: Arrived) -> None:
        """The next record of the log that is read."""
        record = arrived.record
        if self.rules is not None and isinstance(record, Settings):
            arrived = replace(arrived, record=under(record, self.rules))
        said = self.folds[-1].step(arrived)
        if said.findings or said.incidents:
            self.outcome.take(said)


def under(record: Settings, rules: EngineSettings) -> Settings:
    """The record with other rules."""
    settings = settings_under(record.settings, rules)
    return replace(record, settings=settings, digest=settings_digest(settings))


def settings_under(recorded: EngineSettings, rules: EngineSettings) -> EngineSettings:
    """The rules, for a past of which these were recorded.

    Cluster, shard and intervals say whose past it is and how it was measured: they stay.
    """
    ticks = replace(
        rules.ticks, interval_s=recorded.ticks.interval_s,
        interval_default_s=recorded.ticks.interval_default_s, beat_s=recorded.ticks.beat_s,
    )  # fmt: skip
    return replace(rules, cluster=recorded.cluster, shard=recorded.shard, ticks=ticks)


def note_of_settings(found: Replayed, named: str, rules: EngineSettings) -> list[str]:
    """Where settings were named that the log did not run with: which ones were in force."""
    if all(settings_under(fold.settings, rules) == fold.settings for fold in found.folds):
        return []
    return [
        f"the engine ran with {AS_RECORDED}, as it did then; what {named} would have said"
        f" otherwise shows --against {named}"
    ]


def replay_both(
    logs: Sequence[Log], first: EngineSettings | None, second: EngineSettings | None,
    from_s: float | None = None, to_s: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> tuple[Replayed, Replayed]:  # fmt: skip
    """Fold every log twice, reading it once; `tick` is told the log's time.

    Snapshots are not used: they hold what other settings had made of the past. Raises InputError.
    """
    sides = (Side(first), Side(second))
    for log in logs:
        for side in sides:
            side.folds.append(Fold(verdict, log.kind))
        for count, arrived in enumerate(between(log, from_s, to_s)):
            for side in sides:
                side.take(arrived)
            if tick is not None and count % EVERY == 0:
                tick(sides[0].folds[-1].now)
        if sides[0].folds[-1].counters.records == 0:
            raise nothing_read(log)
    one, other = (_replayed(side, logs) for side in sides)
    return one, other


def _replayed(side: Side, logs: Sequence[Log]) -> Replayed:
    torn = sum(len(log.torn) for log in logs)
    summary = summarize(side.folds, torn, any(log.cold for log in logs))
    return Replayed(side.outcome, summary, Exhibits(), side.folds, notes_of(logs, side.outcome))


def compared(
    both: tuple[Replayed, Replayed], read: str, origins: tuple[str, str],
    scores: Sequence[Score] = (),
) -> WhatIf:  # fmt: skip
    """How the second differs from the first.

    read     what was replayed, for people
    origins  where the two settings are from, for people
    scores   of both, or none
    """
    first, second = both
    changed, same = differences(first.incidents, second.incidents)
    plain = [msgspec.to_builtins(score) for score in scores]
    return WhatIf(
        read, *origins, setting_differences(first, second), changed, same,
        list(dict.fromkeys([*first.notes, *second.notes])), plain,
    )  # fmt: skip


def setting_differences(first: Replayed, second: Replayed) -> list[SettingDifference]:
    """Of the settings that were in force at the end, each key that differs in any shard, once."""
    found: dict[str, SettingDifference] = {}
    for one, other in zip(first.folds, second.folds, strict=True):
        for path, _ in leaves(EngineSettings):
            key = ".".join(("engine", *path))
            values = [_text(_value(fold.settings, path)) for fold in (one, other)]
            if values[0] != values[1]:
                found.setdefault(key, SettingDifference(key, values[0], values[1]))
    return list(found.values())


def _value(settings: EngineSettings, path: tuple[str, ...]) -> object:
    value: object = settings
    for name in path:
        value = getattr(value, name)
    return value


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def differences(
    first: Sequence[Incident], second: Sequence[Incident]
) -> tuple[list[Difference], int]:
    """What the second tells otherwise, by time; and how many incidents both tell alike."""
    found = [_difference(one, other) for one, other in paired(first, second)]
    changed = [one for one in found if one is not None]
    changed.sort(key=lambda one: (one.incident.opened_at, one.incident.id))
    return changed, len(found) - len(changed)


def paired(
    first: Sequence[Incident], second: Sequence[Incident]
) -> Iterator[tuple[Incident | None, Incident | None]]:
    """Who tells of the same: by id; else, where another onset made another id, by kind and whom.

    Of several the one that was opened next to it; each has at most one counterpart.
    """
    left = {incident.id: incident for incident in second}
    alone = []
    for one in first:
        other = left.pop(one.id, None)
        if other is None:
            alone.append(one)
        else:
            yield one, other
    for one in alone:
        akin = [other for other in left.values() if _akin(one, other)]
        near = min(akin, key=lambda other: (abs(other.opened_at - one.opened_at), other.id),
                   default=None)  # fmt: skip
        yield one, None if near is None else left.pop(near.id)
    yield from ((None, other) for other in left.values())


def _akin(one: Incident, other: Incident) -> bool:
    """The same kind about the same, at a common time."""
    if one.kind != other.kind or one.job != other.job:
        return False
    if one.scope != other.scope and not _nodes(one) & _nodes(other):
        return False
    return _since(one) <= _until(other) and _since(other) <= _until(one)


def _nodes(incident: Incident) -> set[str]:
    return {suspect.node for suspect in incident.suspects if suspect.node}


def _since(incident: Incident) -> float:
    return min((line.onset for line in incident.evidence), default=incident.opened_at)


def _until(incident: Incident) -> float:
    return float("inf") if incident.closed_at is None else incident.closed_at


def _difference(first: Incident | None, second: Incident | None) -> Difference | None:
    if first is None or second is None:
        return Difference("only first" if second is None else "only second", first, second)
    one, other = first.verdict, second.verdict
    fields: list[Field] = [
        name for name in ("action", "targets", "when", "at", "reason")
        if getattr(one, name) != getattr(other, name)
    ]  # fmt: skip
    if not fields and [_gist(v) for v in first.verdicts] != [_gist(v) for v in second.verdicts]:
        fields.append("later verdicts")
    if not fields:
        return None
    return Difference("verdict", first, second, tuple(fields), round(other.at - one.at, 3))


def _gist(said: Verdict) -> tuple[object, ...]:
    return (said.action, said.targets, said.when, said.at, said.reason)


def what_if_object(found: WhatIf, both: tuple[Replayed, Replayed]) -> dict[str, Any]:
    """The object of `replay --against --json`; incidents and summaries are those of `replay`."""
    said: dict[str, Any] = {
        "settings": [
            {"key": one.key, **_both([msgspec.json.decode(v) for v in (one.first, one.second)])}
            for one in found.settings
        ],
        "differences": [_difference_object(one) for one in found.differences],
        "same": found.same,
        "summary": _both([msgspec.to_builtins(side.summary) for side in both]),
    }  # fmt: skip
    if found.scores:
        said["score"] = _both(found.scores)
    return said


def _difference_object(one: Difference) -> dict[str, Any]:
    incidents = [None if i is None else incident_object(i) for i in (one.first, one.second)]
    return {
        "change": one.change, "fields": list(one.fields), "delay_s": one.delay_s,
        **_both(incidents),
    }  # fmt: skip


def _both(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("first", "second"), values, strict=True))
