"""What schedulers print, Slurm's and Kubernetes', into flat objects. Pure.

A form is a row of `FORMS`: how it begins, who reads it. Between forms lines are ordinary and give
nothing; a broken part costs only itself. A listing that is not whole says so: what it lacks is
unknown, never gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo

import yaml

from collectors import (
    kubernetes,
    kubernetes_text,
    slurm_json,
    slurm_logs,
    slurm_sacct,
    slurm_text,
)
from collectors.flat import Flat, dict_of, rejected
from collectors.slurm_objects import Gathered, Place, listing_object
from collectors.text_cursor import BYTES_MAX, BrokenJson, Cursor

Read = Callable[[Place, Cursor, Callable[[str], bool]], Iterator[Flat]]
COUNTED_MAX = 10_000
OBJECTS_MAX = 2_000_000  # a short host list names many nodes
YAML_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a listing.

    begins   whether a line is its first one
    example  its first line, as the tool prints it
    """

    name: str
    begins: Callable[[str], bool]
    read: Read
    example: str
    source: str


def read_objects(file: str, pieces: Iterable[bytes], tz: tzinfo = UTC) -> Iterator[Flat]:
    """All objects of one file, each with "file" and "type".

    tz   of times that name no zone: Slurm prints its own
    """
    for number, found in enumerate(_objects(file, pieces, tz)):
        if number >= OBJECTS_MAX:
            yield rejected(file, f"more than {OBJECTS_MAX} entries: the rest was not read", "")
            return
        yield found


def _objects(file: str, pieces: Iterable[bytes], tz: tzinfo) -> Iterator[Flat]:
    cursor = Cursor(pieces)
    counted: dict[str, Flat] = {}
    while cursor:
        line = cursor.line
        if cursor.is_long and not line.startswith(("{", "[")):
            if line[:1].strip() and _form(line[:400]) is not None:
                yield rejected(file, "line too long", line, cursor.number)
            cursor.next()
            continue
        form = _form(line)
        if form is not None:
            at = cursor.at
            yield from form.read(Place(file, form.name, tz), cursor, _is_form)
            assert cursor.at > at, form.name
            continue
        said = _said(file, line, tz)
        if said is not None:
            yield from _count(said, line, counted)
        cursor.next()
    yield from counted.values()
    if cursor.cut:
        yield rejected(file, f"longer than {BYTES_MAX >> 20} MB: the rest was not read", "")


def read_slurm(file: str, pieces: Iterable[bytes], tz: tzinfo = UTC) -> Iterator[Flat]:
    """`nodewarden parse slurm`; `tz` of times that name no zone."""
    return read_objects(file, pieces, tz)


def _form(line: str) -> Form | None:
    if not line or line.isspace():
        return None
    return next((form for form in FORMS if form.begins(line)), None)


def _is_form(line: str) -> bool:
    return _form(line) is not None


def _said(file: str, line: str, tz: tzinfo) -> Flat | None:
    for row in slurm_logs.LINE_FORMS:
        hit = row.pattern.match(line)
        if hit is not None:
            return row.read(Place(file, row.name, tz), hit)
    return None


def _count(said: Flat, line: str, counted: dict[str, Flat]) -> Iterator[Flat]:
    """Say a line that comes again and again once, with its count, at the end."""
    if said["type"] == "rejected":
        yield said
    elif line in counted:
        counted[line]["count"] += 1
    elif len(counted) < COUNTED_MAX:
        counted[line] = {**said, "count": 1}
    else:
        yield {**said, "count": 1}


# -- JSON


def _read_json(place: Place, cursor: Cursor, _: Callable[[str], bool]) -> Iterator[Flat]:
    """One value and, where it is a row of a node per line, those that follow it."""
    gathered = Gathered(place)
    while cursor and cursor.line.lstrip(" \t,").startswith(("{", "[")):
        first, number, indented = cursor.line, cursor.number, cursor.line[0] in " \t"
        try:
            value = cursor.json()
        except BrokenJson as error:
            # The inner lines of a broken value are tried, and said nothing of where they fail.
            if not indented:
                yield rejected(place.file, f"JSON that cannot be read: {error}", first, number)
            cursor.next()
            break
        if isinstance(value, dict) and {"s", "n", "p"} <= value.keys():
            yield from _gather(place, gathered, value, number)
            continue
        yield from _value(place, value, first, number)
        break
    if len(gathered):
        yield from gathered.objects()
        yield listing_object(place, "nodes", len(gathered))


def _gather(place: Place, gathered: Gathered, value: Flat, number: int) -> Iterator[Flat]:
    for found in slurm_json.read_document(place, value, number) or ():
        if found["type"] == "node":
            state = found["state"].split("+")
            gathered.add(found, state)
        else:
            yield found


def _value(place: Place, value: object, first: str, number: int) -> Iterator[Flat]:
    for item in value if isinstance(value, list) else [value]:
        entry = dict_of(item)
        for read in (kubernetes.read_document, slurm_json.read_document):
            found = read(place, entry, number) if entry else None
            if found is not None:
                yield from found
                break


# -- YAML

_YAML_GOES_ON = re.compile(r"$|[ \t#]|- |[A-Za-z][\w.\-]{0,100}:(?: |$)")


def _read_yaml(place: Place, cursor: Cursor, _: Callable[[str], bool]) -> Iterator[Flat]:
    first, number, start = cursor.line, cursor.number, cursor.at
    cursor.next()
    while cursor and _YAML_GOES_ON.match(cursor.line):
        cursor.next()
    text = cursor.text[start : cursor.at]
    if len(text) > YAML_MAX:
        yield rejected(place.file, f"YAML of more than {YAML_MAX >> 20} MB", first, number)
        return
    try:
        value = yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 - makes only text, lists, dicts
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = str(getattr(error, "problem", "") or error)
        yield rejected(place.file, f"YAML that cannot be read: {why}", first, number)
        return
    yield from _value(place, value, first, number)


# -- the forms, in the order in which they are tried


def _starts(*words: str) -> Callable[[str], bool]:
    return lambda line: line.startswith(words)


def _header(*columns: str) -> Callable[[str], bool]:
    """A header: nothing but capitals, and these columns among them."""

    def begins(line: str) -> bool:
        return line.isupper() and set(columns) <= set(line.split())

    return begins


def _is_json(line: str) -> bool:
    """Also an object inside a list; "[user_problem]" is a reason and "[2018-" a date."""
    return line.lstrip(" \t,").startswith("{") or line[:2] in ("[", "[{", "[ ")


def _is_sinfo_columns(line: str) -> bool:
    cells = {cell.strip() for cell in line.split("|")} if "|" in line else set()
    return "STATE" in cells and bool(cells & {"NODELIST", "HOSTNAMES"})


FORMS: tuple[Form, ...] = (
    Form("JSON", _is_json, _read_json,
         '{"nodes": [{"name": "n1", "state": ["IDLE", "DRAIN"], ...}], "errors": []}',
         "sinfo, squeue, scontrol, sacct --json 21.08 to 26.05; slurmrestd v0.0.37 to v0.0.44;"
         " kubectl get nodes,pods -o json; NVSentinel health events"),
    Form("YAML", _starts("apiVersion: ", "kind: "), _read_yaml, "apiVersion: v1",
         "kubectl get nodes,pods -o yaml"),
    Form("scontrol show", _starts("NodeName=", "JobId="), slurm_text.read_scontrol,
         "NodeName=node-102-68 Arch=x86_64 CoresPerSocket=1", "awslabs/awsome-distributed-ai#195"),
    Form("sacct", lambda line: slurm_sacct.delimiter(line) is not None, slurm_sacct.read_sacct,
         "Account|AllocTRES|End|ExitCode|JobID|JobName|NodeList|Start|State",
         "facebookresearch/gcm, MIT"),
    Form("sinfo -o", _is_sinfo_columns, slurm_text.read_sinfo_columns,
         "AVAIL|HOSTNAMES|STATE|USER|REASON|NODELIST|STATE", "facebookresearch/gcm, MIT"),
    Form("sinfo", _header("STATE", "NODELIST"), slurm_text.read_sinfo_table,
         "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST", "ArjunaCluster/ArjunaUsers#69"),
    Form("sinfo -R", _header("REASON", "TIMESTAMP", "NODELIST"), slurm_text.read_sinfo_table,
         "REASON               USER      TIMESTAMP           NODELIST", "NVIDIA/deepops#660"),
    Form("squeue", _header("JOBID", "NODELIST(REASON)"), slurm_text.read_squeue_table,
         "JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
         "Slurm's manual"),
    Form("sinfo --Format", slurm_text.is_padded_row, slurm_text.read_padded,
         "node1074      gpu:ampere:8      256     0/256/0/256     idle     learn",
         "facebookresearch/gcm, MIT"),
    Form("kubectl get nodes", _header("NAME", "STATUS", "ROLES"), kubernetes_text.read_node_table,
         "NAME     STATUS     ROLES    AGE   VERSION", "microsoft/pai#4589"),
    Form("kubectl describe node",
         lambda line: re.match(r"(?:Name|Taints|Conditions): {0,40}", line) is not None,
         kubernetes_text.read_describe, "Name:               p100", "microsoft/pai#4589"),
    Form("node condition message", _starts("ErrorCode:"), kubernetes_text.read_condition_messages,
         "ErrorCode:44 GPU:0 Recommended Action=CONTACT_SUPPORT;", "NVIDIA/NVSentinel, Apache-2.0"),
)  # fmt: skip
