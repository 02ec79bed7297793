"""What a scheduler forgets at once and the fold still needs: jobs that ended, attempts before.

What went wrong in a job is often judged minutes after it ended: by then its nodes must still be
known. Pure.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from telemetry.records import Allocation, Job, JobNode

ENDED_MAX = 20_000  # the last to end are kept


class Recent:
    """Adds to each listing what the ones before it said and what is over by now.

    keep_s  how long after its end a job or an attempt stays listed
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._jobs: dict[str, Job] = {}

    def with_ended(self, listing: Allocation, now_s: float) -> Allocation:
        """The listing with what is missing in it, ended. A whole listing, never a part of one."""
        since_s = now_s - self._keep_s
        known, self._jobs = self._jobs, {}
        for job in listing.jobs:
            old = known.pop(job.id, None)
            self._jobs[job.id] = job if old is None else _continued(old, job, now_s, since_s)
        over = [_over(job, now_s) for job in known.values()]
        over = [job for job in over if job.end is not None and job.end > since_s]
        over.sort(key=lambda job: (job.end or 0.0, job.id))
        self._jobs |= {job.id: job for job in over[-ENDED_MAX:]}
        return replace(listing, jobs=[job for _, job in sorted(self._jobs.items())])


def _continued(old: Job, job: Job, now_s: float, since_s: float) -> Job:
    """The job with the nodes that it held before: an earlier attempt, or one that it gave back."""
    held = {(node.name, node.since) for node in job.nodes}
    left_s = now_s if old.end is None else min(old.end, now_s)
    if job.start is not None and old.start is not None and job.start > old.start:
        left_s = min(left_s, job.start)  # the next attempt has begun
    before = [_until(node, left_s) for node in old.nodes if (node.name, node.since) not in held]
    kept = [node for node in before if _lasted(node) and (node.until or 0.0) > since_s]
    return replace(job, nodes=[*kept, *job.nodes]) if kept else job


def _over(job: Job, now_s: float) -> Job:
    end = now_s if job.end is None else job.end
    return replace(job, end=end, nodes=[_until(node, end) for node in job.nodes])


def _until(node: JobNode, end_s: float) -> JobNode:
    return node if node.until is not None else replace(node, until=end_s)


def _lasted(node: JobNode) -> bool:
    since = -math.inf if node.since is None else node.since
    return node.until is not None and since < node.until
