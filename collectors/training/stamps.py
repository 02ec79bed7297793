"""Times as training logs print them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from telemetry.codec import AT_MAX_S, AT_MIN_S

_WINDOW = 4_096
_DATE_MAX = 40  # bytes of one time
YEARLESS = 2000  # a leap year: only differences of such times mean something

DATE = r"(20\d\d-\d\d-\d\d)[ T_-](\d\d:\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d(?![\d:]))?"
_OWN = re.compile(r"[^\n]{0,48}?\b" + DATE)
_ANYWHERE = re.compile(r"(?:datetime: |CANCELLED AT )" + DATE)
BYTES = re.compile(DATE.encode())
# glog: a letter, month and day without a year ("E424" is 24 April, "E1206" 6 December).
_GLOG = re.compile(r"(?:^|[\s\[])[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")


def printed(text: str, tz: tzinfo) -> float | None:
    """The time that stands within the first words of a line, or after "datetime:"."""
    found = _OWN.match(text) or _ANYWHERE.search(text[:512])
    return moment(found[1], found[2], found[3], found[4], found[5], tz) if found else None


def newest(data: bytes, tz: tzinfo) -> float | None:
    """The last time in a stretch of a log, looked for from its end."""
    end = len(data)
    while end > 0:
        start = max(0, end - _WINDOW)
        last = None
        for last in BYTES.finditer(data, start, min(len(data), end + _DATE_MAX)):  # noqa: B007
            pass
        if last is not None:
            return _of_bytes(last, tz)
        end = start
    return None


def oldest(data: bytes, tz: tzinfo) -> tuple[float | None, int]:
    """The first time in a stretch of a log, and where it stands: at its end where there is none."""
    found = BYTES.search(data)
    return _of_bytes(found, tz), found.start() if found is not None else len(data)


def _of_bytes(found: re.Match[bytes] | None, tz: tzinfo) -> float | None:
    if found is None:
        return None
    parts = [None if part is None else part.decode("ascii") for part in found.groups()]
    return moment(parts[0] or "", parts[1] or "", parts[2] or "", parts[3], parts[4], tz)


def moment(
    day: str, minute: str, second: str, fraction: str | None, zone: str | None, tz: tzinfo
) -> float | None:
    """Unix seconds, or None where the digits name no time. `zone` goes before `tz`."""
    base_s = _minute(day, minute, _zone(zone) if zone else tz)
    if base_s is None or int(second) > 60:
        return None
    at_s = base_s + int(second) + (float(f"0.{fraction}") if fraction else 0.0)
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


@lru_cache(maxsize=1_024)
def _minute(day: str, minute: str, tz: tzinfo) -> float | None:
    try:
        return datetime.fromisoformat(f"{day}T{minute}").replace(tzinfo=tz).timestamp()
    except (ValueError, OverflowError):
        return None


def of_minute(
    minute: bytes, second: bytes, fraction: bytes | None, tz: tzinfo
) -> float | None:  # fmt: skip
    """The same of a line's bytes, `minute` as "2024-04-06 02:59": most lines share theirs."""
    base_s = _minute_of(minute, tz)
    if base_s is None or int(second) > 60:
        return None
    at_s = base_s + int(second) + (float(b"0." + fraction) if fraction else 0.0)
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


@lru_cache(maxsize=1_024)
def _minute_of(minute: bytes, tz: tzinfo) -> float | None:
    text = minute.decode("ascii", "replace")
    return _minute(text[:10], text[11:], tz)


def _zone(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 23 or minutes > 59:
        return UTC
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def middle_of(year: int, tz: tzinfo) -> float:
    """The time that lies nearest to all stamps of a year."""
    return datetime(year, 7, 2, 12, tzinfo=tz).timestamp()


def glog(text: str, tz: tzinfo, near_s: float | None) -> tuple[float | None, float | None]:
    """(Unix seconds, seconds into a year nobody named) of a glog stamp, None where there is none.

    near_s   a time of the same log: the year is the one that puts the stamp nearest to it;
             without it the first of the two is None
    """
    found = _GLOG.search(text[:96])
    if found is None:
        return None, None
    rough = _in_year(found, YEARLESS, tz)
    if near_s is None or rough is None:
        return None, rough
    year = datetime.fromtimestamp(near_s, tz).year
    near = [_in_year(found, year + more, tz) for more in (-1, 0, 1)]
    known = [at_s for at_s in near if at_s is not None and AT_MIN_S <= at_s < AT_MAX_S]
    return min(known, key=lambda at_s: abs(at_s - near_s), default=None), rough


def _in_year(found: re.Match[str], year: int, tz: tzinfo) -> float | None:
    month, day, hour, minute, second = (int(part) for part in found.groups()[:5])
    try:
        at_s = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=tz).timestamp()
    except (ValueError, OverflowError):
        return None
    return at_s + (float(f"0.{found[6]}") if found[6] else 0.0)
