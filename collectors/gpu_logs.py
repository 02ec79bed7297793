"""Two more forms of GPU readings: SuperBench's records and AMD's error log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from collectors.series import clean_one
from telemetry.codec import rejected
from telemetry.metrics import BY_NAME, Metric
from telemetry.records import Rejected

LINE_BYTES_MAX = 1 << 20
STALE_S = 3_600.0  # an error record this much older than its log line is history


@dataclass(frozen=True, slots=True)
class MonitorReading:
    """One GPU's value in one record of SuperBench's monitor.

    clock   local time as printed; it names no zone, so it is no event time by itself
    """

    name: str
    metric: Metric
    entity: str
    clock: str
    value: float | None
    missing: str = ""


_MONITOR = {
    "gpu_usage": ("gpu_utilization_percent", 1.0),
    "gpu_temperature": ("gpu_temperature_celsius", 1.0),
    "gpu_power_limit": ("gpu_power_limit_watts", 1.0),
    "gpu_power": ("gpu_power_watts", 1.0),
    "gpu_mem_used": ("gpu_framebuffer_used_mib", 1.0 / 1_048_576.0),
    "gpu_mem_total": ("gpu_framebuffer_total_mib", 1.0 / 1_048_576.0),
    "gpu_corrected_ecc": ("gpu_ecc_correctable_volatile_total", 1.0),
    "gpu_uncorrected_ecc": ("gpu_ecc_uncorrectable_volatile_total", 1.0),
}


def read_monitor(lines: Iterable[bytes], place: str) -> Iterator[MonitorReading | Rejected]:
    """One flat JSON object a line, its keys `metric:gpu`."""
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield rejected(f"JSON: {error}"[:200], line, f"{place}:{at}")
            continue
        if not isinstance(row, dict):
            yield rejected("JSON: no record of a monitor", line, f"{place}:{at}")
            continue
        clock = str(row.get("time", ""))[:40]
        for key, value in row.items():
            name, colon, index = str(key).partition(":")
            known = _MONITOR.get(name) if colon and index.isdecimal() else None
            if known is not None:
                yield _monitored(name, index, clock, value, known)


def _monitored(
    name: str, index: str, clock: str, value: object, known: tuple[str, float]
) -> MonitorReading:
    metric = BY_NAME[known[0]]
    entity = f"gpu{index[:4]}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MonitorReading(name, metric, entity, clock, None, "not available")
    cleaned, missing = clean_one(
        msgspec.structs.replace(metric, scale=known[1]), float(max(min(value, 1e300), -1e300))
    )
    return MonitorReading(name, metric, entity, clock, cleaned, missing)


@dataclass(frozen=True, slots=True)
class CperEvent:
    """One error record of an AMD GPU.

    at_s      when the hardware recorded it
    said_at_s when the exporter wrote its log line
    stale     recorded long before: the exporter repeats old records after each start
    """

    entity: str
    at_s: float
    said_at_s: float | None
    severity: str
    stale: bool
    text: str


_CPER = re.compile(
    r'(?:time="([^"]{10,40})" )?.{0,40}msg="gpuuid=([0-9a-fA-F-]{8,40}) '
    r"TimeStamp=(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) .{0,80}?Severity=CPER_SEVERITY_([A-Z_]{1,40})"
)
_SEVERITY = {"FATAL": "critical", "NON_FATAL_UNCORRECTED": "warning", "NON_FATAL_CORRECTED": "info"}


def read_cper(lines: Iterable[bytes], place: str) -> Iterator[CperEvent | Rejected]:
    """The time of an event is the one inside the message, not the log line's."""
    for at, line in enumerate(lines, 1):
        if b"CPER_SEVERITY" not in line:
            continue
        text = line[:4_096].decode("utf-8", "replace").strip()
        found = _CPER.match(text)
        at_s = _utc(found[3]) if found is not None else None
        if found is None or at_s is None:
            yield rejected("an error record without a GPU or a time", line, f"{place}:{at}")
            continue
        said_at_s = _utc(found[1]) if found[1] else None
        stale = said_at_s is not None and said_at_s - at_s > STALE_S
        severity = _SEVERITY.get(found[4], "warning")
        yield CperEvent(f"gpu:{found[2]}", at_s, said_at_s, "info" if stale else severity, stale,
                        text)  # fmt: skip


def _utc(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
