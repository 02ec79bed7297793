"""Schedulers' listings as the log's `Allocation`: who works where, who is out since when. Pure.

Several files may speak of one cluster: a job said twice is one job, its attempts are its nodes'
times. Nothing is ever gone because one of them lacks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from collectors.flat import Flat
from telemetry.codec import name_fault, rejected
from telemetry.records import Allocation, Job, JobNode, NodeInfo, Rejected

LISTING = "alloc"
OBJECTS_MAX = 1_000_000
TEXT_MAX = 4_096
OURS = "nodewarden"


@dataclass(slots=True)
class Allocated:
    """What all files together say.

    jobs      by id
    nodes     by the scheduler's name
    since_s   node -> since when it is in its state, where that was said
    aliases   other name -> the scheduler's name, where only one node claims it
    rejected  what could not be read
    partial   why a listing was not whole
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)


def read_allocated(objects: Iterable[Flat]) -> Allocated:
    """From the objects of `collectors.slurm.read_objects`."""
    found = Allocated()
    claimed: dict[str, set[str]] = {}
    tries: dict[str, list[Flat]] = {}
    pods: dict[str, list[Flat]] = {}
    for number, said in enumerate(objects):
        if number >= OBJECTS_MAX:
            found.partial.append(f"more than {OBJECTS_MAX} entries: the rest was left out")
            break
        if said["type"] == "node":
            _add_node(found, said, claimed)
        elif said["type"] == "job" and not said["step"] and said["nodes"]:
            tries.setdefault(said["id"], []).append(said)
        elif said["type"] == "pod" and said["node"]:
            pods.setdefault(said["job"], []).append(said)
        elif said["type"] == "rejected":
            found.rejected.append(_rejected(said))
        elif said["type"] == "listing" and not said["complete"]:
            found.partial.append(f"{said['file']}: {said['of']}: {said['reason']}")
    found.jobs = {id_: _job(id_, rows) for id_, rows in sorted(tries.items())}
    found.jobs |= {id_: _pods_job(id_, rows) for id_, rows in sorted(pods.items())}
    for job in found.jobs.values():
        for held in job.nodes:
            found.nodes.setdefault(held.name, NodeInfo(name=held.name))
    found.aliases = {
        alias: next(iter(names)) for alias, names in sorted(claimed.items()) if len(names) == 1
    }
    return found


def _owner(said: Flat) -> str:
    """Who drained it; us, where the reason reads as ours, whoever's login it was set with."""
    if not said.get("reason"):
        return ""
    return OURS if said.get("reason_class") == "ours" else said.get("reason_by") or ""


def _add_node(found: Allocated, said: Flat, claimed: dict[str, set[str]]) -> None:
    name = said["name"]
    if not name or name_fault("node", name) is not None:
        return
    known = found.nodes.get(name)
    if known is None or said["state"]:
        found.nodes[name] = NodeInfo(name=name, state=said["state"], owner=_owner(said),
                                     rack=known.rack if known else "",
                                     boot_at=said.get("boot_at"))  # fmt: skip
    if said.get("reason_at") is not None:
        found.since_s[name] = said["reason_at"]
    changes = [c["changed_at"] for c in said.get("conditions", ()) if c["type"] == "Ready"]
    if changes and changes[0] is not None:
        found.since_s[name] = changes[0]
    for alias in said.get("aliases", ()):
        claimed.setdefault(alias.lower(), set()).add(name)


def _job(id_: str, rows: list[Flat]) -> Job:
    """One job of one or more attempts; of one attempt the row that knows its end."""
    by_start: dict[float | None, Flat] = {}
    for row in rows:
        known = by_start.get(row["start"])
        if known is None or (row["ended"] and not known["ended"]):
            by_start[row["start"]] = row
    attempts = sorted(by_start.values(), key=lambda row: row["start"] or 0.0)
    last = attempts[-1]
    numbers = [row["attempt"] for row in rows if row["attempt"] is not None]
    return Job(
        id=id_, name=last["name"], attempt=max([len(attempts) - 1, *numbers]),
        start=attempts[0]["start"], end=last["end"], gpus_per_node=last["gpus_per_node"],
        nodes=[
            JobNode(name=name, since=row["start"], until=row["end"])
            for row in attempts
            for name in dict.fromkeys(row["nodes"])
        ],
        code=last.get("code", ""),
    )  # fmt: skip


def _pods_job(id_: str, rows: list[Flat]) -> Job:
    """The job that its pods make; where some have GPUs, the others do not train."""
    train = [row for row in rows if row["gpus"]] or rows
    held: dict[tuple[str, float | None, float | None], int] = {}
    for row in train:
        place = (row["node"], row["start"], row["end"])
        held[place] = held.get(place, 0) + row["gpus"]
    starts = [row["start"] for row in train if row["start"] is not None]
    ends = [row["end"] for row in train]
    counts = set(held.values())
    return Job(
        id=id_, name=id_.rpartition("/")[2],
        attempt=max((row["attempt"] or 0 for row in train), default=0),
        start=min(starts, default=None),
        end=max((end for end in ends if end is not None), default=None)
        if all(end is not None for end in ends) else None,
        gpus_per_node=counts.pop() if len(counts) == 1 and 0 not in counts else None,
        nodes=[JobNode(name=name, since=since, until=until) for name, since, until in sorted(
            held, key=lambda place: (place[0], place[1] or 0.0, place[2] or 0.0))],
    )  # fmt: skip


def _rejected(said: Flat) -> Rejected:
    line = f":{said['line']}" if "line" in said else ""
    text = said["text"][:TEXT_MAX].encode("utf-8", "replace")
    return rejected(said["reason"], text, f"{said['file']}{line}")


def joined(listing: Allocation | None, said: Allocated, first_s: float) -> Allocation | None:
    """`jobs.json` and the listings: where both speak of a job or a node, `jobs.json` holds.

    A node's state is taken where it is older than the capture; a younger one is a change within it
    (`changes`), one without a date is of another time and is left out.
    """
    if not said.jobs and not said.nodes:
        return listing
    jobs = dict(said.jobs)
    nodes = {
        name: info if said.since_s.get(name, first_s) < first_s
        else msgspec.structs.replace(info, state="", owner="")
        for name, info in said.nodes.items()
    }  # fmt: skip
    if listing is not None:
        jobs |= {job.id: job for job in listing.jobs}
        for info in listing.nodes:
            known = nodes.get(info.name)
            nodes[info.name] = (
                msgspec.structs.replace(info, state=known.state, owner=known.owner)
                if known is not None and not info.state else info
            )  # fmt: skip
    return Allocation(
        at=first_s, node="", source="inventory", started_at=0.0, seq=0,
        jobs=[job for _, job in sorted(jobs.items())],
        nodes=[info for _, info in sorted(nodes.items())], listing=LISTING, last=True, count=1,
    )  # fmt: skip


def changes(
    said: Allocated, listing: Allocation, first_s: float, last_s: float
) -> list[Allocation]:
    """Nodes that came into their state within the capture, each when it happened."""
    places = {info.name: info for info in listing.nodes}
    return [
        Allocation(
            at=at_s, node="", source="inventory", started_at=0.0, seq=0,
            nodes=[msgspec.structs.replace(
                places.get(name, said.nodes[name]), state=said.nodes[name].state,
                owner=said.nodes[name].owner)],
        )
        for name, at_s in sorted(said.since_s.items(), key=lambda pair: (pair[1], pair[0]))
        if first_s <= at_s <= last_s and name in said.nodes and said.nodes[name].state
    ]  # fmt: skip


def undated(said: Allocated) -> int:
    """Nodes that are out by a listing that does not say since when."""
    return sum(
        1 for name, info in said.nodes.items()
        if name not in said.since_s and any(w in info.state for w in ("DRAIN", "DOWN", "FAIL"))
    )  # fmt: skip
