"""Slurm's words: node and job states with their suffixes and flags, reasons, times, GPUs. Pure.

A state that holds a word nobody here knows is unknown: neither usable nor out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache

from telemetry.codec import AT_MAX_S, AT_MIN_S

REASON_CUT = 20  # characters that `sinfo -R` leaves of a reason

# What `sinfo` hangs behind a state.
SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT_RESERVATION",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "MORE_STATES",
}

# Long and short spelling -> base state, flags. A base of None leaves it to the other words.
NODE_WORDS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "IDLE": ("IDLE", ()),
    "ALLOCATED": ("ALLOCATED", ()),
    "ALLOC": ("ALLOCATED", ()),
    "MIXED": ("MIXED", ()),
    "MIX": ("MIXED", ()),
    "DOWN": ("DOWN", ()),
    "ERROR": ("ERROR", ()),
    "FUTURE": ("FUTURE", ()),
    "FUTR": ("FUTURE", ()),
    "UNKNOWN": ("UNKNOWN", ()),
    "UNK": ("UNKNOWN", ()),
    "DRAIN": (None, ("DRAIN",)),
    "DRAINED": ("IDLE", ("DRAIN",)),
    "DRAINING": ("ALLOCATED", ("DRAIN",)),
    "DRNG": ("ALLOCATED", ("DRAIN",)),
    "FAIL": (None, ("FAIL",)),
    "FAILING": ("ALLOCATED", ("FAIL",)),
    "FAILG": ("ALLOCATED", ("FAIL",)),
    "MAINT": (None, ("MAINTENANCE",)),
    "MAINTENANCE": (None, ("MAINTENANCE",)),
    "RESERVED": (None, ("RESERVED",)),
    "RESV": (None, ("RESERVED",)),
    "PLANNED": (None, ("PLANNED",)),
    "PLND": (None, ("PLANNED",)),
    "COMPLETING": (None, ("COMPLETING",)),
    "COMP": (None, ("COMPLETING",)),
    "BLOCKED": (None, ("BLOCKED",)),
    "PERFCTRS": (None, ("PERFCTRS",)),
    "NPC": (None, ("PERFCTRS",)),
    "NO_RESPOND": (None, ("NOT_RESPONDING",)),
    "NOT_RESPONDING": (None, ("NOT_RESPONDING",)),
    "REBOOT": (None, ("REBOOT_REQUESTED",)),
    "REBOOT_REQUESTED": (None, ("REBOOT_REQUESTED",)),
    "REBOOT_ISSUED": (None, ("REBOOT_ISSUED",)),
    "REBOOT_CANCELED": (None, ("REBOOT_CANCELED",)),
    "BOOT": (None, ("POWERING_UP",)),
    "INVAL": (None, ("INVALID_REG",)),
    "INVALID_REG": (None, ("INVALID_REG",)),
    "INVALID": (None, ("INVALID_REG",)),
    "POWERED_DOWN": (None, ("POWERED_DOWN",)),
    "POWERING_DOWN": (None, ("POWERING_DOWN",)),
    "POW_DN": (None, ("POWERING_DOWN",)),
    "POWERING_UP": (None, ("POWERING_UP",)),
    "POW_UP": (None, ("POWERING_UP",)),
    "POWER_DOWN": (None, ("POWER_DOWN",)),
    "POWER_UP": (None, ("POWERING_UP",)),
    "POWER_DRAIN": (None, ("POWER_DRAIN",)),
    "CLOUD": (None, ("CLOUD",)),
    "DYNAMIC_NORM": (None, ("DYNAMIC_NORM",)),
    "DYNAMIC_FUTURE": (None, ("DYNAMIC_FUTURE",)),
    "EXTERNAL": (None, ("EXTERNAL",)),
    "RES": (None, ("RESERVED",)),
    "UNDRAIN": (None, ()),
    "RESUME": (None, ()),
}
_WORKING = frozenset({"IDLE", "ALLOCATED", "MIXED"})
_OUT = frozenset({
    "DRAIN", "FAIL", "NOT_RESPONDING", "MAINTENANCE", "REBOOT_ISSUED", "INVALID_REG",
    "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_DRAIN",
})  # fmt: skip
_BUSY = frozenset({"ALLOCATED", "MIXED"})


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the scheduler says of a node.

    text    "IDLE+DRAIN", as `NodeInfo.state` carries it; "" where it said nothing
    usable  whether it may be given work; None where a word is unknown or nothing was said
    drain   "drained" with nothing left on it, "draining" while work runs, None where not drained
    """

    base: str | None
    flags: tuple[str, ...]
    usable: bool | None
    drain: str | None
    unknown: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "+".join([*([self.base] if self.base else []), *self.flags, *self.unknown])


def node_state(words: Iterable[str]) -> NodeState:
    """The state in any of its spellings: "drained$", "IDLE+DRAIN", ["MIXED", "DRAIN"]."""
    return _node_state(tuple(word[:400] for word in words))


@lru_cache(maxsize=4_096)
def _node_state(words: tuple[str, ...]) -> NodeState:
    base: str | None = None
    flags: set[str] = set()
    unknown: list[str] = []
    for piece in (piece for word in words for piece in re.split(r"[+,\s]+", word)):
        bare = piece.rstrip("".join(SUFFIXES))
        flags.update(SUFFIXES[sign] for sign in piece[len(bare) :])
        if not bare:
            continue
        row = NODE_WORDS.get(bare.upper())
        if row is None:
            unknown.append(bare.upper()[:64])
            continue
        flags.update(row[1])
        if row[0] is not None and (base is None or row[0] != "IDLE"):
            base = row[0]
    flags -= {"MORE_STATES"} if base is not None else set()
    return _judged(base, flags, tuple(sorted(set(unknown)))[:8])


def _judged(base: str | None, flags: set[str], unknown: tuple[str, ...]) -> NodeState:
    out = bool(flags & _OUT) or base in ("DOWN", "ERROR", "FUTURE")
    usable: bool | None = None
    if out:
        usable = False
    elif base in _WORKING and not unknown:
        usable = True
    elif base is None and flags and not unknown:
        usable = bool(flags & {"RESERVED", "PLANNED", "COMPLETING"}) or None
    drain = None
    if "DRAIN" in flags and base is not None:
        drain = "draining" if base in _BUSY or "COMPLETING" in flags else "drained"
    return NodeState(base, tuple(sorted(flags)), usable, drain, unknown)


# Job states: short spelling -> long; and whether a job in it has ended.
_JOB_SHORT = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING",
    "CG": "COMPLETING", "DL": "DEADLINE", "F": "FAILED", "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED",
    "SI": "SIGNALING", "SE": "SPECIAL_EXIT", "SO": "STAGE_OUT", "ST": "STOPPED",
    "S": "SUSPENDED", "TO": "TIMEOUT",
}  # fmt: skip
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REQUEUED", "REVOKED", "TIMEOUT", "SPECIAL_EXIT",
})  # fmt: skip
_ALIVE = frozenset({
    "CONFIGURING", "COMPLETING", "PENDING", "RUNNING", "RESV_DEL_HOLD", "REQUEUE_FED",
    "REQUEUE_HOLD", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED",
})  # fmt: skip
HOLDS_NODES = frozenset({
    "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
    "STAGE_OUT",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state: its main word ("" unknown) and what stands beside it.

    ended   None where the word is unknown
    """

    word: str
    flags: tuple[str, ...]
    ended: bool | None


def job_state(words: Iterable[str]) -> JobState:
    """ "CANCELLED by 1185200069", "R", ["COMPLETED", "COMPLETING"]."""
    found: list[str] = []
    for word in words:
        for piece in re.split(r"[+,]", word[:400]):
            bare = piece.strip().partition(" ")[0].upper()
            if bare:
                found.append(_JOB_SHORT.get(bare, bare)[:64])
    main = next((word for word in found if word in ENDED), found[0] if found else "")
    flags = tuple(sorted({word for word in found if word != main}))
    if main in ENDED:
        return JobState(main, flags, True)
    return JobState(main, flags, False if main in _ALIVE else None)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node is out: the words, by whom and since when, and what kind of reason it is."""

    text: str
    class_: str
    by: str | None = None
    at_s: float | None = None


# Pattern, class. None of them is a verdict over a GPU; only "ours" may ever be undone.
REASONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"nodewarden:[\w.\-]{1,40}:[\w.\-]{1,40}$(?!\n)", re.A), "ours"),
    (re.compile(r"gres/gpu count (?:reported lower|changed)"), "gres_count"),
    (re.compile(r"Kill task failed"), "kill_task"),
    (re.compile(r"Not responding"), "not_responding"),
    (re.compile(r"Node unexpectedly rebooted"), "rebooted"),
    (re.compile(r"Low (?:RealMemory|TmpDisk|CPUs|socket\*core)"), "configuration"),
    (re.compile(r"CoreSpec differ"), "configuration"),
    (re.compile(r"NHC: "), "health_check"),
    (re.compile(r"\[(?:user|node|hardware)_problem\]"), "health_check"),
    (re.compile(r"(?:CPU|GPU|ECC|DIMM|NVLink)\b.{0,40}(?:error|dead|fail)"), "hardware"),
    (re.compile(r"planned_maintenance|replace$|(?i:maint)"), "maintenance"),
)
_SET = re.compile(r" ?\[([^\[\]@\s]{1,64})@([^\[\]\s]{1,40})\]\s*$")


def reason(text: str, tz: tzinfo) -> Reason | None:
    """A drain reason with the note that `scontrol` hangs behind it; None where there is none."""
    bare = text.strip()[:4_096]
    if not bare or bare.lower() in ("none", "(null)", "n/a", "unknown"):
        return None
    hit = _SET.search(bare)
    words = bare[: hit.start()] if hit else bare
    return Reason(
        words, reason_class(words), hit[1] if hit else None, local_time(hit[2], tz) if hit else None
    )


def reason_class(words: str) -> str:
    """The class of a reason, "other" where no row knows it."""
    return next((name for pattern, name in REASONS if pattern.match(words)), "other")


_LOCAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")


def local_time(text: str, tz: tzinfo) -> float | None:
    """Unix seconds of "2024-12-19T11:03:34", which Slurm prints in its own time zone."""
    bare = text.strip()
    if _LOCAL.fullmatch(bare) is None:
        return None
    try:
        moment = datetime.fromisoformat(bare)
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=tz)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


_GRES = re.compile(
    r"(?:^|,)(?:gres[/:])?gpu(?::[A-Za-z][^:,(=]{0,80})?[:=](\d{1,6})(?![0-9A-Za-z])"
)
_TRES = re.compile(r"(?:^|,)gres/gpu=(\d{1,9})(?![0-9])")
_INDEX = re.compile(r"\(IDX:([0-9,\-]{1,400})\)")


def gpus(gres: str) -> int | None:
    """GPUs of "gpu:ampere:8(S:0-1)", several types added; None where nothing is said of GPUs."""
    found = [int(hit) for hit in _GRES.findall(re.sub(r"\([^()]{0,400}\)", "", gres[:4_096]))]
    return sum(found) if found else None


def tres_gpus(tres: str) -> int | None:
    """GPUs of "cpu=80,mem=0,gres/gpu=32,node=4"; None where nothing is said of GPUs."""
    hit = _TRES.search(tres[:4_096])
    return int(hit[1]) if hit else None


def gpu_indexes(gres_used: str) -> list[int]:
    """The indexes of "gpu:ampere:4(IDX:0-2,5)"."""
    found: list[int] = []
    for text in _INDEX.findall(gres_used[:4_096]):
        for piece in text.split(","):
            first, _, last = piece.partition("-")
            if first.isdecimal() and (last or first).isdecimal() and len(first + last) < 8:
                found += range(int(first), min(int(last or first), int(first) + 1_024) + 1)
    return sorted(set(found))[:1_024]
