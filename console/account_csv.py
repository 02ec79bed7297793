"""An account as CSV files: plain numbers in seconds, unknown is empty, one file a table.

A text that a spreadsheet would take for a formula gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from console.text import visible
from telemetry.accounts import Account, IncidentAccount, JobAccount, Phase, Productivity, Spread

FORMULA = ("=", "+", "-", "@", "\t", "\r")
Row = Mapping[str, Any]


def csv_files(account: Account) -> dict[str, str]:
    """File name -> its text, with a head line each; a table without rows is only its head."""
    return {
        "summary.csv": _text([_summary(account)]),
        "jobs.csv": _text([_job(one) for one in account.jobs], _JOB_HEAD),
        "incidents.csv": _text([_incident(one) for one in account.incidents],
                               _INCIDENT_HEAD),
        "times.csv": _text(_plain(account.times), _fields(Spread)),
        "mechanisms.csv": _text(_plain(account.mechanisms), ("mechanism", "count", "share")),
        "hours.csv": _text(_plain(account.hours), ("at", "ettr")),
        "decisions.csv": _text(_plain(account.decisions), _DECISION_HEAD),
        "rails.csv": _text(_plain(account.rails), ("rail", "count", "first")),
        "requests.csv": _text(_plain(account.requests), ("verb", "accepted", "reason", "count")),
        "commands.csv": _text(_plain(account.outcomes), ("step", "status", "dry_run", "count")),
        "recoveries.csv": _text(
            _plain(account.recoveries), ("state", "mode", "dry_run", "count")
        ),
        "updates.csv": _text(_plain(account.updates), ("state", "count")),
        "lemons.csv": _text(_plain(account.lemons), _LEMON_HEAD),
    }  # fmt: skip


_PHASES: tuple[Phase, ...] = Phase.__args__  # type: ignore[attr-defined]
_DECISION_HEAD = ("at", "id", "incident", "job", "action", "targets", "mode", "state", "reason",
                  "by", "refused_by")  # fmt: skip
_LEMON_HEAD = ("node", "incidents", "jobs", "failures", "kinds", "isolated", "xids", "last_at",
               "is_lemon")  # fmt: skip


def _fields(of: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(of.__struct_fields__)


def _time(time: Productivity) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(Productivity):
        value = getattr(time, field)
        if field.startswith("hour_"):
            found[f"{field}_ettr"] = None if value is None else value.ettr
            found[f"{field}_at"] = None if value is None else value.at
        else:
            found[field] = value
    return found


_TIME_HEAD = tuple(_time(Productivity()))
_JOB_HEAD = ("id", "nodes", "begun_at", "ended_at", "step", *_TIME_HEAD)
_INCIDENT_HEAD = ("id", "job", "scope", "kind", "cause", "onset", "opened_at", "closed_at",
                  "decision", "mechanism", "final_cause", "false_alarm",
                  *(f"{phase}_s" for phase in _PHASES))  # fmt: skip


def _summary(account: Account) -> Row:
    since, until = account.period or (None, None)
    return {"from": since, "to": until, "job": account.job, "jobs": len(account.jobs),
            "silent_jobs": account.silent_jobs, **_time(account.fleet)}  # fmt: skip


def _job(one: JobAccount) -> Row:
    return {"id": one.id, "nodes": one.nodes, "begun_at": one.begun_at, "ended_at": one.ended_at,
            "step": one.step, **_time(one.time)}  # fmt: skip


def _incident(one: IncidentAccount) -> Row:
    row = {name: getattr(one, name) for name in _INCIDENT_HEAD if hasattr(one, name)}
    return row | {f"{phase}_s": one.phases.get(phase) for phase in _PHASES}


def _plain(items: Iterable[msgspec.Struct]) -> list[Row]:
    return [msgspec.to_builtins(one) for one in items]


def _text(rows: Sequence[Row], head: Sequence[str] = ()) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(head or rows[0])
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return out.getvalue()


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return round(value, 6) if isinstance(value, float) else value
    if isinstance(value, list):
        return _cell(" ".join(str(one) for one in value))
    text = visible(str(value), 2_000)
    return f"'{text}" if text.startswith(FORMULA) else text
