"""Kubernetes objects, JSON or YAML, into nodes, pods and health events. Pure.

A condition has three values, and one whose heartbeat is old is unknown whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from collectors.flat import Flat, count_of, dict_of, list_of, name_of, rejected, text_of
from collectors.slurm_objects import Place, listing_object
from telemetry.codec import AT_MAX_S, AT_MIN_S

STALE_S = 600.0  # a kubelet that lives renews its heartbeat every 5 min at the latest
ITEMS_MAX = 200_000
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "huawei.com/Ascend910", "hygon.com/dcu")
MIG = re.compile(r"nvidia\.com/mig-([0-9a-z.]{2,20})")

# Which label names the job that a pod belongs to, the kind that wrote it, which label its rank.
# In this order: a JobSet's pods also carry the labels of the batch jobs below it.
JOB_LABELS: tuple[tuple[str, str, str], ...] = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet", "batch.kubernetes.io/job-completion-index"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet",
     "leaderworkerset.sigs.k8s.io/worker-index"),
    ("training.kubeflow.org/job-name", "Kubeflow job", "training.kubeflow.org/replica-index"),
    ("pytorch-job-name", "PyTorchJob", "pytorch-replica-index"),
    ("mpi-job-name", "MPIJob", ""),
    ("volcano.sh/job-name", "Volcano job", "volcano.sh/task-index"),
    ("ray.io/cluster", "RayCluster", ""),
    ("kueue.x-k8s.io/pod-group-name", "Kueue pod group", ""),
    ("batch.kubernetes.io/job-name", "Job", "batch.kubernetes.io/job-completion-index"),
    ("job-name", "Job", "batch.kubernetes.io/job-completion-index"),
)  # fmt: skip
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
PLACE_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

# Conditions of which True is good; of all others True is bad.
_GOOD_WHEN_TRUE = re.compile(r"(?:.{0,200})(?:Ready|Healthy|Available|Succeeded)")


def read_document(place: Place, value: dict[str, Any], line: int) -> Iterator[Flat] | None:
    """The objects of one JSON or YAML value; None where it is nothing of Kubernetes'."""
    kind = text_of(value.get("kind"), 64)
    if kind == "Status" and text_of(value.get("status")) == "Failure":
        told = text_of(value.get("message")) or text_of(value.get("reason")) or "failure"
        return iter([rejected(place.file, f"the API answered: {told}", told, line)])
    if kind.endswith("List") and isinstance(value.get("items"), list):
        return _list(place, kind, value["items"], line)
    if "checkName" in value and "nodeName" in value:
        return iter([_health_event(place, value)])
    read = _KINDS.get(kind)
    return iter([read(place, value, line)]) if read is not None else None


def _list(place: Place, kind: str, items: list[Any], line: int) -> Iterator[Flat]:
    """A listing may hold several kinds; each of ours ends with its own "listing"."""
    counts: dict[str, int] = {}
    bad = 0
    for item in items[:ITEMS_MAX]:
        entry = dict_of(item)
        # The items of a NodeList do not say their kind again.
        of = text_of(entry.get("kind"), 64) or kind.removesuffix("List")
        read = _KINDS.get(of)
        if read is None:
            continue
        found = read(place, entry, line)
        counts[of] = counts.get(of, 0) + (found["type"] != "rejected")
        bad += found["type"] == "rejected"
        yield found
    if kind.removesuffix("List") in _KINDS:
        counts.setdefault(kind.removesuffix("List"), 0)
    fault = f"{bad} entries cannot be read" if bad else ""
    if len(items) > ITEMS_MAX:
        fault = f"{len(items) - ITEMS_MAX} entries too many"
    for of, count in sorted(counts.items()):
        empty = "no node in it: a cluster has nodes" if of == "Node" and not count else ""
        yield listing_object(place, f"{of.lower()}s", count, fault or empty)


def _node(place: Place, value: dict[str, Any], line: int) -> Flat:
    meta, spec, status = (dict_of(value.get(key)) for key in ("metadata", "spec", "status"))
    name = name_of(meta.get("name"))
    if not name:
        return rejected(place.file, "node without a name", str(meta)[:400], line)
    labels = dict_of(meta.get("labels"))
    conditions = read_conditions(list_of(status.get("conditions")))
    taints = [text_of(dict_of(t).get("key"), 253) for t in list_of(spec.get("taints"))[:64]]
    cordoned = spec.get("unschedulable") in (True, "true")  # YAML is read as text
    said = [name_of(dict_of(a).get("address")) for a in list_of(status.get("addresses"))[:32]]
    capacity, free = dict_of(status.get("capacity")), dict_of(status.get("allocatable"))
    mig = {
        hit[1]: count
        for key, amount in free.items()
        if (hit := MIG.fullmatch(text_of(key))) and (count := count_of(amount))
    }
    return {
        **node_flat(place, name, conditions, cordoned, taints),
        "aliases": sorted({a for a in [*said, name_of(labels.get("kubernetes.io/hostname"))]
                           if a and a != name}),
        "gpus": _gpus(labels, capacity, mig), "gpus_withheld": _withheld(capacity, free),
        "mig": mig, "zone": name_of(labels.get(PLACE_LABELS[0])),
        "boot_id": name_of(dict_of(status.get("nodeInfo")).get("bootID")),
    }  # fmt: skip


def _gpus(labels: dict[str, Any], capacity: dict[str, Any], mig: dict[str, int]) -> int | None:
    """GPUs of the machine: cut into parts they are no longer counted as whole ones."""
    labelled = count_of(labels.get("nvidia.com/gpu.count"))
    if labelled is not None:
        return labelled
    counts = [c for key in GPU_RESOURCES if (c := count_of(capacity.get(key))) is not None]
    return None if not counts or mig else sum(counts)


def _withheld(capacity: dict[str, Any], free: dict[str, Any]) -> int | None:
    """Whole GPUs that the device plugin holds back as unhealthy.

    Parts say nothing of it: the capacity keeps rows of parts that were cut anew.
    """
    pairs = [(count_of(capacity.get(key)), count_of(free.get(key))) for key in GPU_RESOURCES]
    known = [(whole, left) for whole, left in pairs if whole is not None and left is not None]
    return sum(max(whole - left, 0) for whole, left in known) if known else None


def node_flat(
    place: Place, name: str, conditions: list[Flat], cordoned: bool, taints: list[str]
) -> Flat:
    """A node by its conditions: READY, NOTREADY or UNKNOWN, and DRAIN where it is cordoned."""
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    word = "UNKNOWN" if ready is None else {"ok": "READY", "bad": "NOTREADY"}.get(
        ready["health"], "UNKNOWN"
    )  # fmt: skip
    unreachable = any(taint.endswith(("/unreachable", "/not-ready")) for taint in taints)
    usable: bool | None = None if word == "UNKNOWN" else word == "READY"
    if cordoned or unreachable:
        usable = False
    flags = (["DRAIN"] if cordoned else []) + (["NOT_RESPONDING"] if unreachable else [])
    return {
        "file": place.file, "type": "node", "form": place.form, "name": name,
        "state": "+".join([word, *flags]), "usable": usable, "cordoned": cordoned,
        "taints": [taint for taint in taints if taint], "conditions": conditions,
    }  # fmt: skip


def read_conditions(rows: list[Any]) -> list[Flat]:
    """Conditions with what they mean: "ok", "bad", or "unknown" where they say so or are stale.

    Stale is 10 min older than the node's newest heartbeat: who renews one renews all.
    """
    said = [dict_of(row) for row in rows[:256]]
    beats = [kube_time(row.get("lastHeartbeatTime")) for row in said]
    newest = max((beat for beat in beats if beat is not None), default=None)
    found = []
    for row, beat in zip(said, beats, strict=True):
        stale = beat is not None and newest is not None and newest - beat > STALE_S
        kind, status = text_of(row.get("type"), 253), text_of(row.get("status"), 32)
        found.append({
            "type": kind, "status": status, "stale": stale,
            "health": "unknown" if stale else _health(kind, status),
            "reason": text_of(row.get("reason"), 253),
            "message": text_of(row.get("message"), 1_024),
            "heartbeat_at": beat, "changed_at": kube_time(row.get("lastTransitionTime")),
        })  # fmt: skip
    return found


def _health(kind: str, status: str) -> str:
    value = {"true": True, "false": False}.get(status.lower())
    if value is None:
        return "unknown"
    good = _GOOD_WHEN_TRUE.fullmatch(kind) is not None
    return "ok" if value is good else "bad"


def _pod(place: Place, value: dict[str, Any], line: int) -> Flat:
    meta, spec, status = (dict_of(value.get(key)) for key in ("metadata", "spec", "status"))
    name = name_of(meta.get("name"))
    if not name:
        return rejected(place.file, "pod without a name", str(meta)[:400], line)
    space = name_of(meta.get("namespace")) or "default"
    labels = {
        text_of(k): text_of(v, 253) for k, v in list(dict_of(meta.get("labels")).items())[:512]
    }
    row = next((row for row in JOB_LABELS if labels.get(row[0])), None)
    owner = name_of(
        next((dict_of(o).get("name") for o in list_of(meta.get("ownerReferences"))), "")
    )
    ended = _terminated(status)
    return {
        "file": place.file, "type": "pod", "form": place.form, "name": name, "namespace": space,
        "job": f"{space}/{labels[row[0]] if row else owner or name}",
        "job_kind": row[1] if row else ("owner" if owner else "pod"),
        "queue": labels.get(QUEUE_LABEL, ""), "attempt": count_of(labels.get(ATTEMPT_LABEL)),
        "replica": count_of(labels.get(row[2])) if row and row[2] else None,
        "role": labels.get("training.kubeflow.org/replica-type", ""),
        "node": name_of(spec.get("nodeName")), "phase": text_of(status.get("phase"), 64),
        "gpus": _pod_gpus(spec), "start": kube_time(status.get("startTime")),
        "end": ended[0], "exit_code": ended[1],
        "reason": ended[2] or text_of(status.get("reason"), 253),
    }  # fmt: skip


def _pod_gpus(spec: dict[str, Any]) -> int:
    total = 0
    for container in list_of(spec.get("containers"))[:256]:
        wants = dict_of(dict_of(container).get("resources"))
        asked = {**dict_of(wants.get("requests")), **dict_of(wants.get("limits"))}
        total += sum(count_of(asked.get(key)) or 0 for key in GPU_RESOURCES)
    return total


def _terminated(status: dict[str, Any]) -> tuple[float | None, int | None, str]:
    """When the last container ended, the first exit code that is not 0, and its reason."""
    states = [
        dict_of(dict_of(dict_of(c).get("state")).get("terminated"))
        for c in list_of(status.get("containerStatuses"))[:256]
    ]
    over = [state for state in states if state]
    if not over or len(over) < len(states):
        return None, None, ""
    ends = [at for state in over if (at := kube_time(state.get("finishedAt"))) is not None]
    bad = next(
        (state for state in over if count_of(state.get("exitCode")) not in (0, None)), over[0]
    )
    return max(ends, default=None), count_of(bad.get("exitCode")), text_of(bad.get("reason"), 253)


def _job(place: Place, value: dict[str, Any], line: int) -> Flat:
    """A JobSet, PyTorchJob or Kueue workload: that it exists and how it stands."""
    meta = dict_of(value.get("metadata"))
    name = name_of(meta.get("name"))
    if not name:
        return rejected(place.file, "job without a name", str(meta)[:400], line)
    space = name_of(meta.get("namespace")) or "default"
    status = dict_of(value.get("status"))
    return {
        "file": place.file, "type": "workload", "form": place.form,
        "kind": text_of(value.get("kind"), 64), "name": f"{space}/{name}",
        "attempt": count_of(status.get("restarts")),
        "queue": name_of(dict_of(meta.get("labels")).get(QUEUE_LABEL)),
        "start": kube_time(status.get("startTime")), "end": kube_time(status.get("completionTime")),
        "conditions": [
            {"type": text_of(row.get("type"), 253), "status": text_of(row.get("status"), 32),
             "reason": text_of(row.get("reason"), 253)}
            for row in map(dict_of, list_of(status.get("conditions"))[:64])
        ],
    }  # fmt: skip


def _health_event(place: Place, value: dict[str, Any]) -> Flat:
    """What NVSentinel says of a device; a healthy one clears the same check on the same entity."""
    entities = {
        text_of(row.get("entityType"), 64): name_of(row.get("entityValue"))
        for row in map(dict_of, list_of(value.get("entitiesImpacted"))[:64])
    }
    return {
        "file": place.file, "type": "health_event", "form": place.form,
        "node": name_of(value.get("nodeName")), "check": name_of(value.get("checkName")),
        "healthy": value.get("isHealthy") is True, "fatal": value.get("isFatal") is True,
        "codes": [code for code in map(name_of, list_of(value.get("errorCode"))[:64]) if code],
        "gpu_index": count_of(entities.get("GPU")), "gpu_uuid": entities.get("GPU_UUID", ""),
        "pci": entities.get("PCI", "").lower(), "action": count_of(value.get("recommendedAction")),
        "text": text_of(value.get("message")),
    }  # fmt: skip


_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_WORDS = re.compile(r"(?:[A-Z][a-z]{2}, )?(\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d) ([+-]\d{4})")


def kube_time(value: object) -> float | None:
    """Unix seconds of "2023-01-19T06:34:21Z" or "Thu, 03 Nov 2016 12:18:28 +0000"."""
    text = text_of(value, 64).strip()
    iso, words = _ISO.fullmatch(text), _WORDS.fullmatch(text)
    try:
        if iso is not None:
            at_s = datetime.fromisoformat(iso[1] + iso[2]).timestamp()
        elif words is not None:
            moment = datetime.strptime(words[1], "%d %b %Y %H:%M:%S").replace(tzinfo=UTC)
            sign = -1 if words[2][0] == "-" else 1
            east = timedelta(hours=int(words[2][1:3]), minutes=int(words[2][3:5]))
            at_s = moment.timestamp() - sign * east.total_seconds()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


_KINDS = {
    "Node": _node, "Pod": _pod, "JobSet": _job, "PyTorchJob": _job, "MPIJob": _job,
    "Workload": _job, "Job": _job, "LeaderWorkerSet": _job,
}  # fmt: skip
