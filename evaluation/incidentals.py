"""What kernel and training log say of the faults, word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from evaluation.cluster import JOB, Cluster, nic_pci_address, pci_address
from evaluation.fault_kinds import Line
from evaluation.faults import Fault
from telemetry.records import Event

TRACEBACK = """Traceback (most recent call last):
  File "/opt/train/pretrain_gpt.py", line 311, in <module>
    pretrain(train_valid_test_datasets_provider, model_provider, forward_step)
  File "/opt/train/megatron/training/training.py", line 842, in train
    loss_dict, skipped_iter, grad_norm = train_step(forward_step_func, data_iterator)
  File "/opt/train/data/blend.py", line 97, in __getitem__
    weight = self.weights[index] * sample["scale"]"""

LINES_MAX = 10_000
_KMSG_FIRST = 1_842


def fault_events(cluster: Cluster, faults: Sequence[Fault], end_s: float) -> Iterator[Event]:
    """The lines that faults leave before `end_s`; `seq` is for the caller to number."""
    said = 0
    for fault in faults:
        if fault.what.failure[0]:
            yield _failure(cluster, fault)
        for place in fault.places if fault.what.lines else ():
            for at_s, line, count in sorted(_times(fault, end_s), key=lambda row: row[0]):
                ports = cluster.ports if fault.what.scope == "leaf" else (None,)
                for port in range(len(ports)):
                    unit = port if fault.what.scope == "leaf" else fault.port
                    yield _kernel(cluster, fault, line, place, unit, at_s, count, said)
                    said += 1


def _times(fault: Fault, end_s: float) -> Iterator[tuple[float, Line, int]]:
    """(time, line, its number) of every line of a fault on one node."""
    for begin_s, until_s in fault.spans():
        for line in fault.what.lines:
            times = LINES_MAX if line.times is None else line.times
            for count in range(times if line.every_s > 0.0 else 1):
                at_s = begin_s + line.after_s + count * line.every_s
                if at_s >= min(until_s, fault.end_s, end_s):
                    break
                yield round(at_s, 3), line, count


def _kernel(
    cluster: Cluster,
    fault: Fault,
    line: Line,
    place: int,
    port: int,
    at_s: float,
    count: int,
    said: int,
) -> Event:
    pci, port_name = pci_address(fault.gpu), cluster.ports[port]
    text = line.text.format(
        pci=pci, nic=port_name.split("/")[0], nic_pci=nic_pci_address(port), count=count
    )
    entity = {"gpu": f"pci:{pci}", "nic": f"nic:{port_name}", "disk": _disk(text), "": ""}
    return Event(
        at=at_s, node=cluster.names[place], source="kernel", started_at=0.0, seq=0,
        type=line.type, code=line.code, entity=entity[line.device],
        text=f"{dmesg_time(at_s)} {text}", severity=line.severity, class_=line.class_,
        boot_id=cluster.boot_id(place), kmsg_seq=_KMSG_FIRST + said, pid=line.pid,
        process=line.process,
    )  # fmt: skip


def _disk(text: str) -> str:
    """The disk that a line names, as the parser names it."""
    name = next((word for word in ("nvme0n1", "nvme0") if word in text), "")
    return f"disk:{name}" if name else ""


def _failure(cluster: Cluster, fault: Fault) -> Event:
    rank, (class_, text) = fault.place * cluster.gpus + fault.gpu, fault.what.failure
    return Event(
        at=fault.onset_s, node="", source="training", started_at=0.0, seq=0, type="process",
        text=f"[rank{rank}]: {text}", severity="critical", class_=class_,
        entity=f"rank:{rank}", job=JOB,
    )  # fmt: skip


def traceback_lines(rank: int, last: str) -> list[str]:
    """The traceback as torch prints it, its rank before each line; collectors keep the last."""
    return [*(f"[rank{rank}]: {line}" for line in TRACEBACK.split("\n")), last]


def dmesg_time(at_s: float) -> str:
    """The time as `dmesg --time-format iso` prints it, UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S,%f+00:00")
