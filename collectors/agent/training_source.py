"""Training logs of this node into step rows and failure events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from msgspec import structs

from collectors.agent.log_names import LogNames
from collectors.agent.steps import StepRow
from collectors.agent.tail import FILES_MAX, Piece, TailPosition, Tails
from collectors.training.records import LogRecords, Told
from telemetry.ports import Clock
from telemetry.records import Event, Rejected, Steps

MATCHES_MAX = 10_000
FRESH_S = 86_400.0  # a log that nobody wrote to for a day is history
QUIET_S = 2.0  # a log that says nothing for so long has finished its sentence
JOBS_MAX = 256

Said = StepRow | Event | Rejected


class TrainingSource:
    """The logs that templates name, read as they are written."""

    def __init__(
        self, names: Sequence[LogNames], node: str, boot_id: str, zone: tzinfo,
        saved: TailPosition | None, clock: Clock,
    ) -> None:  # fmt: skip
        self._names, self._node, self._boot_id = names, node, boot_id
        self._zone, self._clock = zone, clock
        self.tails = Tails(self._find, saved)
        self._logs: dict[str, tuple[LogRecords, str, int | None]] = {}
        self._told: OrderedDict[str, Told] = OrderedDict()
        self._spoke_s: dict[str, float] = {}

    def look(self) -> list[Said]:
        """Notice new files and those that are gone."""
        return [one for path in self.tails.look() for one in self._end(path)]

    def poll(self) -> list[Said]:
        """What the logs say since; a log that paused has finished its sentence."""
        now_s = self._clock.monotonic_s()
        said: list[Said] = []
        for piece in self.tails.poll():
            said += self._take(piece)
            self._spoke_s[piece.path] = now_s
        for path in [p for p, spoke_s in self._spoke_s.items() if now_s - spoke_s >= QUIET_S]:
            del self._spoke_s[path]
            log, _, rank = self._logs[path]
            log.heard_at(self._clock.time_s())
            said += self._said(log.finish(), rank)
        return said

    @property
    def is_quiet(self) -> bool:
        """No log has told half of something: a position may be saved."""
        return not self._spoke_s

    def finish(self) -> list[Said]:
        """What waited for further lines; at the end."""
        return [one for path in list(self._logs) for one in self._end(path)]

    def close(self) -> None:
        """Give the files back."""
        self.tails.close()

    def _find(self) -> list[Path]:
        """Files that were written to lately, newest first."""
        found: dict[str, float] = {}
        since_s = self._clock.time_s() - FRESH_S
        for names in self._names:
            for path in names.paths():
                if len(found) >= MATCHES_MAX:
                    break
                written_s = _written_s(path)
                if written_s is not None and written_s >= since_s and names.read(path) is not None:
                    found[path] = written_s
        newest = sorted(found, key=lambda path: (-found[path], path))
        return [Path(path) for path in newest]

    def _take(self, piece: Piece) -> list[Said]:
        said: list[Said] = []
        if piece.restarted:
            said += self._end(piece.path)
        if piece.path not in self._logs:
            self._logs[piece.path] = self._new(piece.path)
        log, _, rank = self._logs[piece.path]
        log.heard_at(self._clock.time_s())
        return said + self._said(log.feed(piece.data), rank)

    def _end(self, path: str) -> list[Said]:
        known = self._logs.pop(path, None)
        self._spoke_s.pop(path, None)
        return self._said(known[0].finish(), known[2]) if known is not None else []

    def _new(self, path: str) -> tuple[LogRecords, str, int | None]:
        job, rank = next(
            (read for names in self._names if (read := names.read(path)) is not None), ("", None)
        )
        # Ranks that have files of their own each speak for themselves.
        told = Told() if rank is not None else self._told.setdefault(job, Told())
        while len(self._told) > JOBS_MAX:
            self._told.popitem(last=False)
        log = LogRecords(path, job, self._zone, rank, None, told)
        assert len(self._logs) <= FILES_MAX + 1
        return log, job, rank

    def _said(self, records: Iterator[Steps | Event | Rejected], rank: int | None) -> list[Said]:
        """A failure that a rank's own log tells is of this node; a job's log knows no node."""
        said: list[Said] = []
        for one in records:
            if isinstance(one, Steps):
                said.append(_row(one, rank))
            elif isinstance(one, Event):
                of_us = rank is not None and one.entity in ("", f"rank:{rank}")
                said.append(structs.replace(
                    one, node=self._node if of_us else "", boot_id=self._boot_id if of_us else "",
                    source=one.source if of_us else f"{one.source}@{self._node}",
                ))  # fmt: skip
            else:
                said.append(one)
        return said


def _row(steps: Steps, rank: int | None) -> StepRow:
    def only(column: list[float | None]) -> float | None:
        return column[0] if column else None

    return StepRow(
        job=steps.job, rank=rank, step=steps.step[0], at_s=steps.at, kind=steps.step_kind,
        step_time_s=only(steps.step_time_s), compute_time_s=only(steps.compute_time_s),
        loss=only(steps.loss), grad_norm=only(steps.grad_norm), tokens=only(steps.tokens),
        mfu_ratio=only(steps.mfu_ratio), throughput=only(steps.throughput),
        nonfinite=tuple(steps.nonfinite[0]) if steps.nonfinite else (),
    )  # fmt: skip


def _written_s(path: str) -> float | None:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return None
