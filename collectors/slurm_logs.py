"""What Slurm and the node health check say when they are asked to change a node. Pure.

A form is a row: how its lines begin, what to make of one. Equal lines said again add to a count:
a check that finds one old line at every run has found one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from collectors.flat import Flat, text_of
from collectors.slurm_objects import Place
from telemetry.slurm_words import local_time, reason_class


@dataclass(frozen=True, slots=True)
class LineForm:
    """One family of lines.

    read   (place, what matched) -> the object without "count"
    """

    name: str
    pattern: re.Pattern[str]
    read: Callable[[Place, re.Match[str]], Flat]
    example: str
    source: str


# The words of the error -> class, whether to try again.
_REFUSALS: tuple[tuple[str, str, bool], ...] = (
    ("Invalid user id", "permission", False),
    ("Access/permission denied", "permission", False),
    ("Unable to contact slurm controller", "unreachable", True),
    ("Zero Bytes were transmitted", "unreachable", True),
    ("Socket timed out", "unreachable", True),
    ("Invalid node state transition", "state_transition", False),
    ("Invalid node state specified", "state_unknown", False),
    ("Invalid node name", "node_unknown", False),
)
_CHANGE = re.compile(r" for (?:node )?([A-Za-z0-9_.\-]{1,253})(?: from=(\S{1,60}) to=(\S{1,60}))?")
_STAMP = re.compile(r"\[([0-9T:.\-]{10,32})\] ")


def _refused(place: Place, hit: re.Match[str]) -> Flat:
    line = hit.string
    class_, again = next(
        ((name, again) for words, name, again in _REFUSALS if words in line), ("other", False)
    )
    change = _CHANGE.search(line)
    if change is None and line.startswith("_slurm_rpc_update_node"):
        change = re.search(r" for ([A-Za-z0-9_.\-]{1,253}): ()()", line)
    stamp = _STAMP.match(line)
    return {
        "file": place.file, "type": "refused", "form": place.form, "class": class_,
        "try_again": again, "node": change[1] if change else "",
        "from": (change[2] or "") if change else "", "to": (change[3] or "") if change else "",
        "at": local_time(stamp[1], place.tz) if stamp else None, "text": text_of(line),
    }  # fmt: skip


def _marked(place: Place, hit: re.Match[str]) -> Flat:
    """offline, online, or kept: somebody else's drain that the check leaves alone."""
    marks = {"Marking": hit["to"] or "", "Not onlining": "kept"}
    told = hit["why"].strip().removeprefix("(").removesuffix(")" if hit["to"] == "online" else "")
    return {
        "file": place.file, "type": "marked", "form": place.form, "node": hit["node"],
        "mark": marks[hit["act"]], "reason": text_of(told), "reason_class": reason_class(told),
        "ours": False, "at": None, "text": text_of(hit.string),
    }  # fmt: skip


_NHC_TIME = "%Y%m%d %H:%M:%S"


def _called(place: Place, hit: re.Match[str]) -> Flat:
    try:
        moment = datetime.strptime(f"{hit[1]} {hit[2]}", _NHC_TIME).replace(tzinfo=place.tz)
        at_s: float | None = moment.timestamp()
    except (ValueError, OverflowError):
        at_s = None
    return {
        "file": place.file, "type": "mark_called", "form": place.form, "node": hit[4],
        "mark": hit[3], "reason": text_of(hit[5].strip()), "at": at_s, "text": text_of(hit.string),
    }  # fmt: skip


def _failed(place: Place, hit: re.Match[str]) -> Flat:
    return {
        "file": place.file, "type": "check_failed", "form": place.form,
        "check": text_of(hit["what"].strip()), "codes": [], "at": None, "text": text_of(hit.string),
    }  # fmt: skip


def _xids(place: Place, hit: re.Match[str]) -> Flat:
    codes = sorted({int(code) for code in re.findall(r"[0-9]{1,5}", hit["codes"])})
    return {
        "file": place.file, "type": "check_failed", "form": place.form, "check": "check_xid_errors",
        "codes": codes, "at": None, "text": text_of(hit.string),
    }  # fmt: skip


def _reason(place: Place, hit: re.Match[str]) -> Flat:
    told = hit.string.strip()
    note = re.search(r" ?\[([^\[\]@\s]{1,64})@([^\[\]\s]{1,40})\]$", told)
    words = told[: note.start()] if note else told
    return {
        "file": place.file, "type": "reason", "form": place.form, "reason": text_of(words),
        "reason_class": reason_class(words), "by": note[1] if note else None,
        "at": local_time(note[2], place.tz) if note else None,
    }  # fmt: skip


def _no_endpoint(place: Place, hit: re.Match[str]) -> Flat:
    return {
        "file": place.file, "type": "rejected", "text": text_of(hit.string),
        "reason": "no such address at slurmrestd: the API version in it is wrong",
    }  # fmt: skip


def _evict(place: Place, hit: re.Match[str]) -> Flat:
    return {
        "file": place.file, "type": "refused", "form": place.form, "class": "disruption_budget",
        "try_again": True, "node": "", "pod": text_of(f"{hit['ns']}/{hit['pod']}"), "at": None,
        "text": text_of(hit.string),
    }  # fmt: skip


_REASON_LINE = (
    r"(?:gres/gpu count reported lower|Kill task failed|Not responding|Node unexpectedly rebooted"
    r"|Low RealMemory|NHC: |CoreSpec differ|ECC memory error|planned_maintenance"
    r"|\[(?:user|node|hardware)_problem\]|replace$)"
)

LINE_FORMS: tuple[LineForm, ...] = (
    LineForm(
        "scontrol update refused",
        re.compile(r"(?:slurm_update error: |slurm_load_[a-z]{1,20}: (?:Unable|Access|Zero|Socket)"
                   r"|(?:\[[0-9T:.\-]{10,32}\] )?Invalid node state transition request"
                   r"|_slurm_rpc_update_node for )"),
        _refused, "slurm_update error: Invalid node state transition",
        "mej/nhc#176, aws/aws-parallelcluster#2467",
    ),
    LineForm(
        "node health check: mark",
        re.compile(r"\S{1,200}:  (?P<act>Marking|Not onlining) {1,3}"
                   r"(?P<node>[A-Za-z0-9_.\-]{1,253})"
                   r"(?:: | (?P<to>offline|online)(?:: | and clearing note ))(?P<why>.{0,4000})"),
        _marked, "node-mark-offline:  Marking  wn-1-30 offline:  NHC: Watchdog timer",
        "mej/nhc#134",
    ),
    LineForm(
        "node health check: call",
        re.compile(r"([0-9]{8}) ([0-9]{2}:[0-9]{2}:[0-9]{2}) (?:\[[a-z]{1,20}\] )?"
                   r"\S{0,200}/node-mark-(online|offline) ([A-Za-z0-9_.\-]{1,253})(.{0,4000})"),
        _called, "20230429 16:10:57 [slurm] /usr/libexec/nhc/node-mark-online wn-1-30.local",
        "mej/nhc#134",
    ),
    LineForm(
        "node health check: failed",
        re.compile(r"ERROR:  nhc:  Health check failed:  (?P<what>.{1,4000})"),
        _failed, "ERROR:  nhc:  Health check failed:  Check check_xid_errors returned 1",
        "mej/nhc#147",
    ),
    LineForm(
        "node health check: Xid",
        re.compile(r"Found XID errors: (?P<codes>[0-9, ]{1,400})"),
        _xids, "Found XID errors: 63", "mej/nhc#147",
    ),
    LineForm(
        "drain reason",
        re.compile(_REASON_LINE), _reason, "Not responding [slurm@2026-01-01T00:00:00]",
        "ArjunaCluster/ArjunaUsers#164, NVIDIA/deepops#660",
    ),
    LineForm(
        "slurmrestd: no such address",
        re.compile(r"Unable to find requested URL endpoint"), _no_endpoint,
        "Unable to find requested URL endpoint.", "rackslab/Slurm-web, MIT",
    ),
    LineForm(
        "kubectl drain: eviction refused",
        re.compile(r'error when evicting pods/"(?P<pod>[^"\s]{1,253})" -n "(?P<ns>[^"\s]{1,253})"'),
        _evict, 'error when evicting pods/"p-0" -n "ml" (will retry after 5s): Cannot evict pod as'
        " it would violate the pod's disruption budget.", "longhorn/longhorn#1286",
    ),
)  # fmt: skip


def is_said(line: str) -> bool:
    """Whether the line is one of these."""
    return any(form.pattern.match(line) for form in LINE_FORMS)
