"""An account as facts and tables of words: the same for the terminal and the HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from console.summary import Fact, Table
from console.text import MISSING, duration, name, several, utc, visible
from telemetry.accounts import Account, Hour, JobAccount, Mechanism, Phase, Productivity

PHASE_WORDS: dict[Phase, tuple[str, str]] = {
    "detect": ("detect", "onset to incident"),
    "decide": ("decide", "incident to decision"),
    "approval": ("of it, waiting for a person", "asked to approved"),
    "act": ("act", "decision to first command"),
    "recover": ("recover", "first command, or stop, to end of first step"),
    "drain": ("  drain", "command, or wait for its moment, to its end"),
    "stop": ("  stop", "command to its outcome"),
    "clean": ("  clean", "command to its outcome"),
    "replace": ("  replace", "command to its outcome"),
    "start": ("  start", "command to its outcome"),
    "down": ("  down", "stop to new attempt, where it was not ours"),
    "load": ("  load", "start to begin of first step"),
    "first_step": ("  first step", "its begin to its end"),
    "recompute": ("recompute", "first step to first new step"),
    "diagnosis_wait": ("idle, waiting for a diagnosis", "stop to decision"),
}
MECHANISM_WORDS: dict[Mechanism, str] = {
    "eviction_restart": "eviction and restart",
    "hot_update": "hot update",
    "analyser_eviction": "eviction by the stacks' analysis",
    "rollback": "rollback",
    "retry": "retry",
    "quarantine": "quarantine",
    "human": "a person",
    "restart_by_others": "restart that was not ours",
    "by_itself": "by itself",
}

RIGHT = frozenset({
    "time", "share", "known", "mean", "median", "longest", "incidents", "share of the known",
    "nodes", "ETTR", "wall-clock", "interruptions", "restarts", "MTBF", "jobs", "interrupted",
    "taken out", "Xids", "decisions", "first to say so", "requests", "commands",
    "times", "recoveries", "updates",
})  # fmt: skip


def headline(account: Account) -> str:
    """The one line to read."""
    time = account.fleet
    jobs = len(account.jobs)
    if time.ettr is None:
        return f"ETTR is not known: nobody told steps of {'it' if account.job else 'any job'}"
    failures = f"{time.interruptions or 0:,} interruption{'' if time.interruptions == 1 else 's'}"
    of = f"{jobs:,} job{'' if jobs == 1 else 's'}"
    return f"ETTR {percent(time.ettr)} of {duration(time.wall_s)} of {of}; {failures}"


def facts(account: Account) -> list[Fact]:
    """Of the fleet, or of the one job."""
    time = account.fleet
    closed = sum(one.closed_at is not None for one in account.incidents)
    false = sum(one.false_alarm for one in account.incidents)
    return [
        Fact("ETTR", percent(time.ettr), "productive time / wall-clock"),
        Fact("newest hour", _hour(time.hour_last), "sliding"),
        Fact("worst hour", _hour(time.hour_lowest), "sliding"),
        Fact("MTBF", duration(time.mtbf_s), "wall-clock / interruptions"),
        Fact(
            "interruptions",
            _count(time.interruptions),
            f"and {time.planned:,} planned" if time.planned else "",
        ),
        Fact("restarts", _count(time.restarts)),
        Fact("incidents", f"{len(account.incidents):,}", f"{closed:,} closed, {false:,} false"),
        Fact("lemon nodes", _count(sum(one.is_lemon for one in account.lemons)), "in 30 days"),
    ]


def tables(account: Account) -> list[Table]:
    """Every table, in the order in which it is shown; empty ones are left out."""
    found = [
        _lost(account), _times(account), _mechanisms(account), _jobs(account.jobs),
        _kinds(account), _lemons(account), _decisions(account), _rails(account),
        _requests(account), _commands(account), _recoveries(account), _updates(account),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def silent(account: Account) -> str:
    """Jobs of which nothing is known."""
    return (
        f"{account.silent_jobs:,} listed jobs told no steps: their ETTR is not known and counts "
        "nowhere"
    )


def percent(share: float | None) -> str:
    """ "97.3 %", "–" where unknown; never rounded up to all, nor down to nothing."""
    if share is None:
        return MISSING
    shown = f"{100.0 * share:.1f}"
    if shown == "100.0" and share < 1.0:
        return "99.9 %"
    return "under 0.1 %" if shown == "0.0" and share > 0.0 else f"{shown} %"


def _lost(account: Account) -> Table:
    time = account.fleet
    rows = [
        ("wall-clock", time.wall_s), ("productive", time.productive_s),
        ("stopped", time.stopped_s), (_waiting(time), time.diagnosis_wait_s),
        ("made again", time.recomputed_s),
        ("other: loading, checkpoints, evaluations, stalls, untold", time.other_s),
    ]  # fmt: skip
    whole_s = time.wall_s
    shown = tuple(
        (what, duration(took_s), percent(took_s / whole_s if took_s is not None and whole_s
                                         else None))
        for what, took_s in rows
    ) if whole_s is not None else ()  # fmt: skip
    alike = ", all jobs alike" if len(account.jobs) > 1 else ""
    return Table(f"Where the time went{alike}", ("what", "time", "share"), shown)


def _waiting(time: Productivity) -> str:
    """The sum is only of the stops of which it is known."""
    known = (time.interruptions or 0) - time.unexplained
    of = f" (known of {known:,} of {time.interruptions:,})" if time.unexplained else ""
    return f"  waiting for a diagnosis{of}"


def _times(account: Account) -> Table:
    rows = tuple(
        (words, hint, f"{one.count:,} of {one.of:,}", duration(one.mean_s),
         duration(one.median_s), duration(one.max_s))
        for one in account.times
        for words, hint in (PHASE_WORDS[one.phase],)
        if one.of
    )  # fmt: skip
    head = ("time to", "from, to", "known", "mean", "median", "longest")
    return Table("How long it took", head, rows)


def _mechanisms(account: Account) -> Table:
    rows = [(MECHANISM_WORDS[one.mechanism], f"{one.count:,}", percent(one.share))
            for one in account.mechanisms]  # fmt: skip
    unknown = sum(
        one.mechanism is None and not one.false_alarm and one.closed_at is not None
        for one in account.incidents
    )
    if unknown:
        rows.append(("not known", f"{unknown:,}", MISSING))
    return Table("Resolved by", ("what", "times", "share of the known"), tuple(rows))


JOBS_MAX = 100
ROWS_MAX = 40


def _jobs(jobs: Sequence[JobAccount]) -> Table:
    worst = sorted(jobs, key=lambda one: (-(one.time.wall_s or 0.0), one.id))
    rows = tuple(
        (
            name(one.id), _count(one.nodes), percent(one.time.ettr), _hour(one.time.hour_lowest),
            duration(one.time.wall_s), _count(one.time.interruptions), _count(one.time.restarts),
            duration(one.time.mtbf_s), "runs" if one.ended_at is None else utc(one.ended_at),
        )
        for one in worst[:JOBS_MAX]
    )  # fmt: skip
    head = ("job", "nodes", "ETTR", "worst hour", "wall-clock", "interruptions", "restarts",
            "MTBF", "end")  # fmt: skip
    return Table("Jobs, the longest first", head, rows, max(0, len(jobs) - JOBS_MAX))


def _kinds(account: Account) -> Table:
    counts = Counter((one.kind, one.cause) for one in account.incidents)
    rows = [(kind, cause, f"{count:,}") for (kind, cause), count in sorted(
        counts.items(), key=lambda one: (-one[1], one[0]))]  # fmt: skip
    return _cut("Incidents by kind", ("kind", "cause", "incidents"), rows)


def _lemons(account: Account) -> Table:
    rows = [
        (
            name(one.node), "lemon" if one.is_lemon else "", f"{one.incidents:,}",
            f"{one.jobs:,}", f"{one.failures:,}", several(list(one.kinds), 6),
            _count(one.isolated), _count(one.xids), utc(one.last_at),
        )
        for one in account.lemons
    ]  # fmt: skip
    head = ("node", "", "incidents", "jobs", "interrupted", "kinds", "taken out", "Xids", "last")
    return _cut("Nodes that come back, 30 days", head, rows)


def _decisions(account: Account) -> Table:
    rows = [(one.state, visible(one.reason, 200), f"{one.count:,}") for one in account.decided]
    return _cut("Decisions", ("state", "reason", "decisions"), rows)


def _rails(account: Account) -> Table:
    rows = [(name(one.rail), f"{one.count:,}", f"{one.first:,}") for one in account.rails]
    return _cut("Rails that did not let pass", ("rail", "decisions", "first to say so"), rows)


def _requests(account: Account) -> Table:
    rows = [
        (one.verb.replace("_", " "), "taken" if one.accepted else "refused",
         visible(one.reason, 200) or MISSING, f"{one.count:,}")
        for one in account.requests
    ]  # fmt: skip
    return _cut("What people asked for", ("what", "became", "reason", "requests"), rows)


def _commands(account: Account) -> Table:
    rows = [
        (name(one.step), one.status, "dry run" if one.dry_run else "", f"{one.count:,}")
        for one in account.outcomes
    ]
    return _cut("Commands", ("what", "outcome", "", "commands"), rows)


def _recoveries(account: Account) -> Table:
    rows = [
        (one.state, name((one.mode or "").replace("_", " ")), "dry run" if one.dry_run else "",
         f"{one.count:,}")
        for one in account.recoveries
    ]  # fmt: skip
    return _cut("Jobs brought back", ("state", "mode", "", "recoveries"), rows)


def _updates(account: Account) -> Table:
    rows = [(one.state, f"{one.count:,}") for one in account.updates]
    return _cut("Updates of code and configuration", ("state", "updates"), rows)


def _cut(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, head, tuple(rows[:ROWS_MAX]), max(0, len(rows) - ROWS_MAX))


def _hour(hour: Hour | None) -> str:
    if hour is None:
        return MISSING
    return f"{percent(hour.ettr)} (to {utc(hour.at, '%m-%d %H:%M')})"


def _count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"
