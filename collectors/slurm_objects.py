"""What the scheduler's listings say, as flat objects, whatever tool printed them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo

from collectors.flat import Flat, rejected
from telemetry.codec import name_fault
from telemetry.hostlist import expand
from telemetry.slurm_words import HOLDS_NODES, JobState, NodeState, Reason, node_state

NODES_MAX = 200_000
_CODE = re.compile(r"(?:^|[\s,;])code=([A-Za-z0-9][A-Za-z0-9._:/@+\-]{0,253})(?=$|[\s,;])")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object stands: the file, its form, and the time zone of times that name none."""

    file: str
    form: str = ""
    tz: tzinfo = UTC


def node_object(
    place: Place, name: str, state: NodeState, why: Reason | None = None, *,
    aliases: Iterable[str] = (), partitions: Iterable[str] = (), reservations: Iterable[str] = (),
    gpus: int | None = None, gpus_used: int | None = None, since_s: float | None = None,
    boot_s: float | None = None, reason_cut: bool = False,
) -> Flat:  # fmt: skip
    """One node."""
    return {
        "file": place.file, "type": "node", "form": place.form, "name": name,
        "aliases": sorted({alias for alias in aliases if alias and alias != name}),
        "state": state.text, "usable": state.usable, "drain": state.drain,
        "unknown_words": list(state.unknown),
        "reason": why.text if why else "", "reason_class": why.class_ if why else "",
        "reason_by": why.by if why else None, "reason_cut": reason_cut,
        "reason_at": why.at_s if why and why.at_s is not None else since_s,
        "partitions": sorted(set(partitions)), "reservations": sorted(set(reservations)),
        "gpus": gpus, "gpus_used": gpus_used, "boot_at": boot_s,
    }  # fmt: skip


def job_object(
    place: Place, id_: str, state: JobState, nodes: list[str], *, name: str = "", step: str = "",
    attempt: int | None = None, start: float | None = None, end: float | None = None,
    gpus: int | None = None, node_count: int | None = None, exit_code: int | None = None,
    signal: int | None = None, partition: str = "", why: str = "", comment: str = "",
) -> Flat:  # fmt: skip
    """One job, or one of its steps.

    end    left out where the job still runs: what a listing then says is its time limit
    gpus   in all
    """
    count = node_count or len(nodes) or None
    share = gpus // count if gpus is not None and count and gpus % count == 0 else None
    return {
        "file": place.file, "type": "job", "form": place.form, "id": id_, "step": step,
        "name": name, "state": state.word, "flags": list(state.flags), "ended": state.ended,
        "holds_nodes": state.word in HOLDS_NODES, "nodes": nodes, "start": start,
        "end": end if state.ended else None, "attempt": attempt, "gpus": gpus,
        "gpus_per_node": share, "exit_code": exit_code, "signal": signal,
        "partition": partition, "reason": why, "code": code_of(comment),
    }  # fmt: skip


def code_of(comment: str) -> str:
    """The version of a job's code, where its owner wrote `code=VERSION` into its comment."""
    found = _CODE.search(comment[:4_096])
    return found[1] if found else ""


def listing_object(place: Place, of: str, count: int, fault: str = "") -> Flat:
    """The end of a listing of "nodes", "jobs" or "pods": whether what it lacks is gone."""
    return {
        "file": place.file, "type": "listing", "form": place.form, "of": of, "count": count,
        "complete": not fault, "reason": fault,
    }  # fmt: skip


def nodes_of(place: Place, text: str, line: str, number: int | None) -> list[str] | Flat:
    """The names of a host list, or the rejected line."""
    names = expand(text)
    if isinstance(names, str):
        return rejected(place.file, names, line, number)
    fault = next((f for name in names if (f := name_fault("node", name))), None)
    return names if fault is None else rejected(place.file, fault, line, number)


class Gathered:
    """Nodes that a listing names once per partition or reservation, each once.

    `state_words` of one node add up: `sinfo` prints "drain*" in one column, "drained*" in another.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._nodes: dict[str, Flat] = {}
        self._words: dict[str, list[str]] = {}
        self.dropped = 0

    def add(self, found: Flat, state_words: list[str]) -> None:
        """Another row about `found["name"]`."""
        name = found["name"]
        known = self._nodes.get(name)
        if known is None:
            if len(self._nodes) >= NODES_MAX:
                self.dropped += 1
                return
            self._nodes[name] = found
            self._words[name] = state_words[:32]
            return
        for key in ("aliases", "partitions", "reservations"):
            known[key] = sorted({*known[key], *found[key]})
        for key in ("reason", "reason_by", "reason_at", "gpus", "gpus_used", "reason_class"):
            known[key] = known[key] or found[key]
        self._words[name] += [word for word in state_words if word not in self._words[name]][:32]

    def objects(self) -> Iterator[Flat]:
        """All nodes in the order of their first row."""
        for name, found in self._nodes.items():
            state = node_state(self._words[name])
            found.update(
                state=state.text, usable=state.usable, drain=state.drain,
                unknown_words=list(state.unknown),
            )  # fmt: skip
            yield found

    def __len__(self) -> int:
        return len(self._nodes)


# Type, what it is, its fields: what `nodewarden parse slurm` prints. Unix seconds in `*_at`,
# `start` and `end`; null is "not said".
OBJECTS: tuple[tuple[str, str, str], ...] = (
    ("node", "a node, once a listing however often it is listed",
     "name, aliases, state (words joined by +), usable (null: unknown), drain (drained, draining),"
     " unknown_words, reason, reason_class, reason_by, reason_at, reason_cut, partitions,"
     " reservations, gpus, gpus_used, boot_at; Kubernetes: cordoned, taints, conditions (type,"
     " status, health, stale, heartbeat_at, changed_at), gpus_withheld, mig, zone, boot_id"),
    ("job", "a job or a step of one",
     "id (12_3 for a task of an array), step, name, state, flags, ended (null: unknown),"
     " holds_nodes, nodes, start, end, attempt, gpus, gpus_per_node, exit_code, signal, partition,"
     " reason, code (of code=VERSION in its comment)"),
    ("pod", "a pod and the job that its labels name",
     "name, namespace, job, job_kind, queue, attempt, replica, role, node, phase, gpus, start, end,"
     " exit_code, reason"),
    ("workload", "a JobSet, PyTorchJob, MPIJob, Job or Kueue workload",
     "kind, name, attempt, queue, start, end, conditions"),
    ("listing", "the end of a listing: whether what it lacks is gone",
     "of (nodes, jobs, pods), count, complete, reason"),
    ("health_event", "NVSentinel's finding about a device; a healthy one clears it",
     "node, check, healthy, fatal, codes, gpu_index, gpu_uuid, pci, action, text"),
    ("refused", "a change that the scheduler refused",
     "class, try_again, node, from, to, pod, at, text, count"),
    ("marked, mark_called, check_failed", "what a node health check did",
     "node, mark (offline, online, kept), reason, reason_class, check, codes, at, text, count"),
    ("reason", "a drain reason by itself", "reason, reason_class, by, at, count"),
    ("answer", "an HTTP answer's status", "name, status, content_type, usable"),
    ("rejected", "recognised and not usable", "reason, text, line"),
)  # fmt: skip
