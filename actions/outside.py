"""What the active instance works with: the log, the world, people. All of it may fail."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actions.ports import ActionLog, Executor, JobFacts, Looks, Teller
from actions.site import SiteView
from telemetry.actions import Compared, Decision, Update
from telemetry.ports import LogReader
from telemetry.records import Control

Point = Callable[[str], None]


def no_point(name: str) -> None:
    """The named points of the work are for tests that end the process there."""


def nobody_knows(job: str) -> JobFacts:
    """Where nobody reads anything of jobs."""
    return JobFacts()


def not_compared(update: Update) -> list[Compared] | None:
    """Where nobody reads the steps."""
    return None


class Outside(msgspec.Struct, frozen=True):
    """See above.

    control  hands a Control record to the telemetry; raises PublishError
    point    is told the name of each point of the work
    teller   None where nobody is told
    tells    whether people are to be told of a decision
    view     the site as the service's rails read it
    version  of nodewarden
    job      what is known of a job, by its id
    compared what the steps say that were made again after an update; None while nobody knows
    looks    how nodes are that were taken out; None: the executor answers that at once
    """

    log: ActionLog
    incidents: LogReader
    executor: Executor
    control: Callable[[Control], None]
    teller: Teller | None = None
    tells: Callable[[Decision], bool] = lambda _decision: True
    point: Point = no_point
    view: SiteView = msgspec.field(default_factory=SiteView)
    version: str = "unknown"
    job: Callable[[str], JobFacts] = nobody_knows
    compared: Callable[[Update], list[Compared] | None] = not_compared
    looks: Looks | None = None
