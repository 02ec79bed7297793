"""Whether jobs still end steps, and how much of their time was productive."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from telemetry.records import Steps

JOBS_MAX = 1_000
STALL_S = 60.0
STALL_STEPS = 5.0


class JobProgress(msgspec.Struct):
    """One job: when its first step began, its newest step, and the seconds that counted."""

    begun_at: float
    ended_at: float
    heard_at: float
    step: int
    step_time_s: float
    productive_s: float


class Progress:
    """Per job; the longest quiet one is forgotten beyond `JOBS_MAX`."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, JobProgress] = OrderedDict()

    def take(self, steps: Steps, at: float, now: float) -> None:
        """Steps ended; a step counts once, whoever tells, and a repeated one never again."""
        if not steps.step:
            return
        step = steps.step[0] if len(steps.step) == 1 else max(steps.step)
        known = self.jobs.get(steps.job)
        if known is None:
            took = _took(steps)
            begun = at - took
            self.jobs[steps.job] = JobProgress(begun, at, now, step, took, took)
            if len(self.jobs) > JOBS_MAX:
                self.jobs.popitem(last=False)
            return
        self.jobs.move_to_end(steps.job)
        known.heard_at = now
        if step <= known.step:
            return
        took = _took(steps)
        if steps.step_kind in ("train", "unknown"):
            # A log line may speak for several steps: its time is their mean.
            known.productive_s += took * min(step - known.step, 10_000)
        known.step, known.ended_at = step, max(at, known.ended_at)
        known.step_time_s = took or known.step_time_s

    def progressing(self, job: str, now: float) -> bool | None:
        """Whether the job ended a step lately; None where it never told."""
        still_s = self.still_s(job)
        return None if still_s is None else now <= still_s

    def still_s(self, job: str) -> float | None:
        """From when on the job counts as standing still, unless it tells of another step."""
        known = self.jobs.get(job)
        if known is None:
            return None
        return known.heard_at + max(STALL_S, STALL_STEPS * known.step_time_s)

    def ettr(self, until: float | None) -> float | None:
        """Productive time over wall-clock of all jobs (ByteRobust); None without steps."""
        wall = sum(max(until or j.ended_at, j.ended_at) - j.begun_at for j in self.jobs.values())
        if wall <= 0.0:
            return None
        return min(1.0, sum(j.productive_s for j in self.jobs.values()) / wall)


def _took(steps: Steps) -> float:
    return max((time_s for time_s in steps.step_time_s if time_s is not None), default=0.0)
