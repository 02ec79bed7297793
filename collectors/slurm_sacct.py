"""`sacct --parsable`, `--parsable2` and `--delimiter`: jobs and steps of the past. Pure.

A field may hold line breaks: a record goes on until it has as many columns as the header. One that
never gets there, or gets too many, is rejected alone; no row's columns are ever shifted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from collectors.flat import Flat, count_of, rejected
from collectors.slurm_objects import Place, job_object, listing_object, nodes_of
from collectors.text_cursor import BrokenJson, Cursor
from telemetry.slurm_words import job_state, local_time, tres_gpus

RECORD_LINES_MAX = 200
RECORD_MAX = 65_536
_HEADER = re.compile(r"[A-Za-z]{2,40}(\|[^A-Za-z0-9\s]{0,3}|[,;\t^~])[A-Za-z]{2,40}")
_ID = re.compile(r"([0-9]{1,12}(?:_[0-9]{1,9}|\+[0-9]{1,6})?)(?:\.([A-Za-z0-9_+\-]{1,64}))?")


def delimiter(line: str) -> str | None:
    """What stands between the columns of a header of sacct; None where it is no such header."""
    if "JobID" not in line or "State" not in line:
        return None
    found = _HEADER.match(line)
    if found is None or not {"JobID", "State"} <= set(line.split(found[1])):
        return None
    return found[1]


def read_sacct(place: Place, cursor: Cursor, stops: Callable[[str], bool]) -> Iterator[Flat]:
    """Rows under one header; what looks like another form ends them unless a record is open."""
    between = delimiter(cursor.line) or "|"
    header = [cell.strip() for cell in cursor.line.split(between)]
    if header[-1] == "":
        header.pop()
    cursor.next()
    count = bad = 0
    open_: list[str] = []
    first = cursor.number
    while cursor:
        line = cursor.line
        alone = _row(header, line.split(between))
        if alone is None and stops(line) and (not open_ or _is_other(cursor)):
            break
        number = cursor.number
        cursor.next()
        record = alone
        if alone is None:
            if not open_ and not line.strip():
                continue
            first = number if not open_ else first
            open_.append(line)
            text = "\n".join(open_)
            cells = text.split(between)
            record = _row(header, cells)
            if record is None and len(cells) <= len(header) and not _is_full(open_):
                continue
        elif open_:
            bad += 1
            yield _broken(place, header, open_, between, first)
            first = number
        else:
            first = number
        found = _broken(place, header, open_, between, first) if record is None else _job(
            place, record, line, first
        )  # fmt: skip
        open_ = []
        bad += found["type"] == "rejected"
        count += found["type"] != "rejected" and not found["step"]
        yield found
    if open_:
        bad += 1
        yield _broken(place, header, open_, between, first)
    yield listing_object(place, "jobs", count, f"{bad} records cannot be read" if bad else "")


def _is_other(cursor: Cursor) -> bool:
    """Whether something else begins here, and not a line of a command that was submitted."""
    if not cursor.line.startswith(("{", "[")):
        return True
    at, number = cursor.at, cursor.number
    try:
        cursor.json()
    except BrokenJson:
        return False
    cursor.back(at, number)
    return True


def _is_full(lines: list[str]) -> bool:
    return len(lines) >= RECORD_LINES_MAX or sum(map(len, lines)) > RECORD_MAX


def _row(header: list[str], cells: list[str]) -> dict[str, str] | None:
    if len(cells) == len(header) + 1 and not cells[-1].strip():
        cells = cells[:-1]
    return dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None


def _broken(place: Place, header: list[str], lines: list[str], between: str, number: int) -> Flat:
    text = "\n".join(lines)
    return rejected(
        place.file, f"{text.count(between) + 1} columns, the header has {len(header)}", text, number
    )


def _job(place: Place, row: dict[str, str], line: str, number: int) -> Flat:
    hit = _ID.fullmatch(row["JobID"].strip())
    if hit is None:
        return rejected(place.file, f"job id {row['JobID'][:80]!r}", line, number)
    names = nodes_of(place, row.get("NodeList", ""), line, number)
    if isinstance(names, dict):
        return names
    code, _, signal = row.get("ExitCode", "").partition(":")
    return job_object(
        place, hit[1], job_state([row["State"]]), names, step=hit[2] or "",
        name=row.get("JobName", "").strip()[:253],
        start=local_time(row.get("Start", ""), place.tz),
        end=local_time(row.get("End", ""), place.tz), gpus=tres_gpus(row.get("AllocTRES", "")),
        node_count=count_of(row.get("NNodes")) or count_of(row.get("AllocNodes")) or None,
        attempt=count_of(row.get("Restarts")), exit_code=count_of(code),
        signal=count_of(signal) or None, partition=row.get("Partition", "").strip(),
        why=row.get("Reason", "").strip() if row.get("Reason", "").strip() != "None" else "",
    )  # fmt: skip
