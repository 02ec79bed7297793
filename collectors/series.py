"""One line's name, labels and value in an exporter's text: whom it speaks of, and what it is worth.

Pure; shared by the reader of dumps with time stamps and the reader of a scrape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from telemetry.metric_names import numbered
from telemetry.metrics import BY_SOURCE_NAME, Metric, recognise

SERIES_BYTES_MAX = 16_384  # name and labels

# A training exporter's gauges and the column of `Steps` that they fill.
STEP_COLUMNS = {
    "training_step": "step",
    "training_iteration": "step",
    "training_step_time_seconds": "step_time_s",
    "training_compute_time_seconds": "compute_time_s",
    "training_loss": "loss",
    "training_grad_norm": "grad_norm",
    "training_tokens": "tokens",
    "training_mfu_ratio": "mfu_ratio",
    "training_throughput_tflops_per_gpu": "throughput",
}

# Of these a value that no GPU is named for still tells something: what the node's GPUs did.
XID_METRICS = frozenset({"gpu_last_xid_code", "gpu_xid_window_events", "gpu_xid_events_total"})

# DCGM's blanks in each number type: "no value", "not found", "not supported", "no permission".
# As float64, and wherever an exporter prints a float, those of int64 are one number.
BLANK_REASONS = ("blank", "not found", "not supported", "no permission")
_INT64_BLANK = 0x7FFF_FFFF_FFFF_FFF0
INT64_BLANK_MIN = float(_INT64_BLANK)
UNSIGNED_BLANK = 4_294_967_295.0  # 2^32 - 1 is an unsigned -1
BLANK_SMALLEST = 2_147_483_632.0
REASON_OF_BLANK = {
    first + at: reason
    for first in (2_147_483_632, 140_737_488_355_328, _INT64_BLANK)
    for at, reason in enumerate(BLANK_REASONS)
}

# Name, labels and the space after them. Possessive, so a hostile line costs its length once.
SERIES = re.compile(
    rb'([A-Za-z_:][A-Za-z0-9_:]*+)(?:[ \t]*+\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?+[ \t]++'
)
_LABEL = re.compile(
    rb'[\s,]*+([A-Za-z_][A-Za-z0-9_]*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+', re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One known series.

    metric   its row of the catalogue; None for a training exporter's gauge
    column   the column of `Steps` that it fills, "" for a catalogue metric
    entity   "GPU-…", "gpu3", "mlx5_0/1", "node"; "" for training, and for an Xid of no named GPU
    labels   all of them, unescaped
    """

    metric: Metric | None
    column: str
    entity: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom labels speak of.

    device   "gpu", "nvlink", "nvswitch", "cpu", "nic", "switch"; "" where they name no device
    entity   its name, "" where they name none
    """

    device: str
    entity: str


@dataclass(frozen=True, slots=True)
class Workload:
    """What ran there as the labels have it; "" is normal. Never a key of anything."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    job: str = ""


def read_series(name: str, text: bytes) -> Series | str | None:
    """The series of a name and its label text; why it is unusable; None where not ours."""
    metric = recognise(name)
    column = STEP_COLUMNS.get(name, "")
    if metric is None and not column:
        return None
    labels = read_labels(text)
    if labels is None:
        return "labels cannot be read"
    if metric is None:
        return Series(None, column, "", labels)
    entity = entity_of(metric, name, owner_of(labels, metric.device))
    if entity is None:
        return None
    return unattributed(metric, entity) or Series(metric, "", entity, labels)


def entity_of(metric: Metric, name: str, owner: Owner) -> str | None:
    """The entity of a metric under an exporter's `name`; None where its owner is another device.

    The same field of an NvSwitch or of CPU 0 is not GPU 0's.
    """
    if owner.device not in (metric.device, ""):
        return None
    if metric.device == "nic" and owner.entity and name not in BY_SOURCE_NAME:
        part = numbered(name)
        return f"{owner.entity}/{part}" if part else owner.entity
    return owner.entity


def unattributed(metric: Metric, entity: str) -> str:
    """Why a value without an owner cannot be used, "" where it can."""
    if entity or metric.name in XID_METRICS:
        return ""
    return f"no label names the {metric.device}"


def read_labels(text: bytes) -> dict[str, str] | None:
    """`a="b",c="d"` with its escapes undone, None where it is something else."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            return labels if not text[at:].strip(b" \t,") else None
        value = found[2].decode("utf-8", "replace")
        if "\\" in value:
            value = _ESCAPE.sub(lambda hit: "\n" if hit[1] == "n" else hit[1], value)
        labels[found[1].decode()] = value
        at = found.end()
    return labels


def owner_of(labels: Mapping[str, str], device: str = "") -> Owner:
    """The device that the labels name.

    device   the class that the metric is of, "" where unknown: only then labels such as `device`,
             which NICs, disks and GPUs share, decide the class
    """
    if device == "node":
        # ipmi_exporter names the sensor by both; a label `name` alone may be anybody's.
        sensor = "id" in labels and "name" in labels
        return Owner("node", f"{labels['name']}/{labels['id']}" if sensor else "node")
    if device == "nic":
        return Owner("nic", _port(labels))
    gpu = _gpu(labels)
    if "nvlink" in labels:
        switch = labels.get("nvswitch", "")
        of = gpu or (f"nvswitch{switch}" if switch else "")
        return Owner("gpu" if gpu else "nvlink", f"{of}/nvlink{labels['nvlink']}" if of else "")
    if "nvswitch" in labels:
        return Owner("nvswitch", f"nvswitch{labels['nvswitch']}")
    if not gpu and ("cpu" in labels or "cpucore" in labels):
        core = labels.get("cpucore", "")
        return Owner("cpu", f"cpucore{core}" if core else f"cpu{labels['cpu']}")
    if gpu:
        return Owner("gpu", gpu)
    port = _port(labels)
    return Owner("nic" if port else "", port) if device == "" else Owner("", "")


_UUID_LABELS = ("UUID", "gpu_uuid", "GPU_UUID", "uuid", "vdie_id")
_INDEX_LABELS = (
    ("gpu", "gpu"), ("gpu_id", "gpu"), ("id", "npu"), ("minor_number", "gpu"),
)  # fmt: skip
_NPU_LABELS = frozenset({"model_name", "pcie_bus_info", "vdie_id"})
_DCU_DEVICE = "device_id"
_NVIDIA_DEVICE = re.compile(r"nvidia(\d{1,4})")


def _gpu(labels: Mapping[str, str]) -> str:
    """UUID, else index, and the MIG instance; never the profile, which exporters get wrong."""
    name = next((labels[label] for label in _UUID_LABELS if labels.get(label)), "")
    if not name:
        name = _gpu_index(labels)
    part = labels.get("GPU_I_ID", "")
    return f"{name}/{part}" if name and part else name


def _gpu_index(labels: Mapping[str, str]) -> str:
    for label, word in _INDEX_LABELS:
        if labels.get(label) and (label != "id" or not _NPU_LABELS.isdisjoint(labels)):
            return f"{word}{labels[label]}"
    found = _NVIDIA_DEVICE.fullmatch(labels.get("device", ""))
    return f"gpu{found[1]}" if found is not None else labels.get(_DCU_DEVICE, "")


def _port(labels: Mapping[str, str]) -> str:
    device = labels.get("device", "") or labels.get("ifname", "") or labels.get("interface", "")
    port = labels.get("port", "")
    return f"{device}/{port}" if device and port else device


def workload_of(labels: Mapping[str, str]) -> Workload:
    """Kubernetes' or Slurm's words for what ran on the device.

    Prometheus writes `exported_pod` where its target has a `pod` of its own, which is then the
    exporter's. Before 2.0 dcgm-exporter wrote `pod_name` and `pod_namespace`.
    """

    def first(*names: str) -> str:
        return next((labels[name] for name in names if labels.get(name)), "")

    return Workload(
        namespace=first("exported_namespace", "pod_namespace", "namespace"),
        pod=first("exported_pod", "pod_name", "pod"),
        container=first("exported_container", "container_name", "container"),
        job=first("hpc_job", "slurm_job_id", "slurm_jobid", "job_id"),
    )


def clean_one(metric: Metric, value: float, word: bytes = b"") -> tuple[float | None, str]:
    """One value as `clean` takes it: in the catalogue's unit, or None and the reason.

    word   as it was printed: digits tell int64's four blanks apart
    """
    if math.isnan(value):
        return None, "nan"
    if value >= BLANK_SMALLEST and value != math.inf:
        if value >= INT64_BLANK_MIN:
            return None, _blank_reason(word)
        if value == UNSIGNED_BLANK:
            return None, "blank"
        if metric.device == "gpu" and value in REASON_OF_BLANK:
            return None, REASON_OF_BLANK[int(value)]
    if value == metric.saturates_at:
        return None, "saturated"
    scaled = value * metric.scale
    if not metric.valid_min <= scaled <= metric.valid_max or scaled == math.inf:
        return None, "not supported" if value == 0.0 else "range"
    return scaled, ""


def _blank_reason(word: bytes) -> str:
    bare = word.strip()
    digits = len(bare) < 20 and bare.isdigit()
    return REASON_OF_BLANK.get(int(bare), "blank") if digits else "blank"


def number(word: bytes) -> float | None:
    """The number that an exporter printed, None for text."""
    if b"_" in word:
        return None  # Python's spelling, nobody else's
    try:
        return float(word)
    except ValueError:
        return None
