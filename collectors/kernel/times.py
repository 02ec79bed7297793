"""Times of kernel log lines: several spellings, years that are not printed, clocks since boot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from telemetry.codec import AT_MAX_S, AT_MIN_S

DISORDER_S = 86_400.0  # lines of a yearless log may be this far out of order
DRIFT_MAX_S = 300.0  # a boot clock that is further off than this is not believed
YEAR_MIN, YEAR_MAX = 2000, 2099

# journald and syslog print the month in the locale's language.
_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9,
    "oct": 10, "nov": 11, "dec": 12, "mär": 3, "mrz": 3, "mai": 5, "okt": 10, "dez": 12,
    "maj": 5, "ene": 1, "abr": 4, "ago": 8, "dic": 12,
}  # fmt: skip


@dataclass(slots=True)
class Clock:
    """Places times that are not whole; remembers the newest it placed.

    tz       of times without an offset
    year     of the first yearless line
    near_s   without a year: a time that the log is known to lie near
    boot_s   Unix seconds at which the kernel's own clock stood at 0
    last_s   the line before
    """

    tz: tzinfo = UTC
    year: int | None = None
    near_s: float | None = None
    boot_s: float | None = None
    last_s: float | None = None

    def iso(self, day: str, clock: str, fraction: str | None, offset: str | None) -> float | None:
        """ "2026-02-25", "13:59:45", digits behind the point, "+01:00" or None."""
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{offset or ''}")
        except ValueError:
            return None
        return self._kept(self._seconds(moment), fraction)

    def worded(
        self, month: str, day: str, clock: str, year: str | None, fraction: str | None = None
    ) -> float | None:
        """ "Feb", "25", "13:59:45", "2026" or None."""
        number = _MONTHS.get(month.lower().rstrip("."))
        if number is None:
            return None
        if year is not None:
            return self._kept(self._at(int(year), number, day, clock), fraction)
        return self._kept(self._yearless(number, day, clock), fraction)

    def unix(self, seconds: float) -> float | None:
        """Seconds since 1970."""
        return self._kept(seconds, None)

    def since_boot(self, seconds: float) -> float | None:
        """The kernel's own clock; None where the boot time is not known."""
        return self._kept(self.boot_s + seconds, None) if self.boot_s is not None else None

    def _yearless(self, month: int, day: str, clock: str) -> float | None:
        """In the order of the file: the earliest year that does not go back by more than a day."""
        if self.last_s is not None:
            year = datetime.fromtimestamp(self.last_s, self.tz).year
            tries = [self._at(y, month, day, clock) for y in range(year - 1, year + 6)]  # leap days
            back = self.last_s - DISORDER_S
            return next((at_s for at_s in tries if at_s is not None and at_s >= back), None)
        if self.year is not None:
            return self._at(self.year, month, day, clock)
        if self.near_s is None:
            return None
        near, year = self.near_s, datetime.fromtimestamp(self.near_s, self.tz).year
        all_ = [self._at(y, month, day, clock) for y in range(year - 4, year + 5)]
        return min(
            (at for at in all_ if at is not None), key=lambda at: abs(at - near), default=None
        )

    def _at(self, year: int, month: int, day: str, clock: str) -> float | None:
        if not YEAR_MIN <= year <= YEAR_MAX:
            return None
        try:
            hour, minute, second = (int(part) for part in clock.split(":"))
            return self._seconds(datetime(year, month, int(day), hour, minute, min(second, 59)))  # noqa: DTZ001
        except ValueError:
            return None

    def _seconds(self, moment: datetime) -> float | None:
        try:
            return (moment if moment.tzinfo else moment.replace(tzinfo=self.tz)).timestamp()
        except (ValueError, OverflowError):
            return None

    def _kept(self, whole_s: float | None, fraction: str | None) -> float | None:
        if whole_s is None:
            return None
        at_s = whole_s + (float(f"0.{fraction}") if fraction else 0.0)
        if not AT_MIN_S <= at_s < AT_MAX_S:
            return None
        self.last_s = at_s
        return at_s


def wall_time(
    since_boot_s: float, boot_s: float, arrived_s: float, *, fresh: bool
) -> tuple[float, bool]:
    """When a live line was said, and whether its clock was not believed.

    since_boot_s  the kernel's clock: it stops while the machine sleeps
    boot_s        taken once a boot; wrong by hours after a suspend or a late NTP step
    arrived_s     when it was read
    fresh         read as it was printed; the ring buffer's old lines at start are not, and are old
    """
    at_s = boot_s + since_boot_s
    late = arrived_s - at_s
    if late < -DRIFT_MAX_S or (fresh and late > DRIFT_MAX_S):
        return arrived_s, True
    return at_s, False


# One search finds each line of a yearless log whose month is not that of the line before.
MONTH_AT_START = re.compile(rb"^(?:<[0-9]{1,3}>)?([A-Z][a-z]{2}) [ 0-9][0-9] ", re.MULTILINE)
