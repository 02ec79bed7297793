"""One stop of a job and the way back to its next new step."""

from __future__ import annotations

import msgspec


class Interruption(msgspec.Struct, kw_only=True):
    """What is known of it; None is unknown, or has not happened yet.

    stopped_at      the last step before it ended
    started_at      the scheduler began the next attempt
    first_began_at  the first step after it began: data and model are loaded by then
    first_ended_at  and ended
    recovered_at    a step ended that had not been made before
    restarts        attempts that it took
    listed          the scheduler told of its attempt
    """

    stopped_at: float | None
    started_at: float | None = None
    first_began_at: float | None = None
    first_ended_at: float | None = None
    recovered_at: float | None = None
    restarts: int = 1
    listed: bool = False

    @property
    def at(self) -> float:
        """When it happened, as near as is known."""
        known = (self.stopped_at, self.started_at, self.first_began_at, self.first_ended_at)
        return next((at for at in known if at is not None), 0.0)

    @property
    def awaits_steps(self) -> bool:
        """Whether no step ended since."""
        return self.first_ended_at is None

    def stopped_s(self, from_s: float, to_s: float) -> float:
        """How long of [from_s, to_s) the job stood still; 0 where nobody knows since when."""
        if self.stopped_at is None:
            return 0.0
        end_s = self.first_began_at if self.first_began_at is not None else to_s
        return max(0.0, min(end_s, to_s) - max(self.stopped_at, from_s))

    def is_tried_again(self, start_s: float, restarts: int) -> None:
        """Another attempt before any step ended."""
        self.started_at, self.first_began_at = start_s, None
        self.restarts += restarts

    def resume(self, at: float, took_s: float | None) -> None:
        """The first step ended at `at`; it took so long where that is known."""
        if self.first_began_at is None and took_s is not None:
            least = [one for one in (self.stopped_at, self.started_at) if one is not None]
            self.first_began_at = min(at, max([at - took_s, *least]))
        self.first_ended_at = at
