"""What kernel and training log say of the faults, word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from evaluation.cluster import JOB, Cluster, pci_address
from evaluation.faults import Fault
from telemetry.records import Event
from telemetry.xids import lookup

TRACEBACK = """Traceback (most recent call last):
  File "/opt/train/pretrain_gpt.py", line 311, in <module>
    pretrain(train_valid_test_datasets_provider, model_provider, forward_step)
  File "/opt/train/megatron/training/training.py", line 842, in train
    loss_dict, skipped_iter, grad_norm = train_step(forward_step_func, data_iterator)
  File "/opt/train/data/blend.py", line 97, in __getitem__
    weight = self.weights[index] * sample["scale"]
TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'"""

XID_TEXTS = {
    79: "NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    13: (
        "NVRM: Xid (PCI:{pci}): 13, pid=48213, name=pt_main_thread, Graphics Exception:"
        " ESR 0x50c730=0xc04000b 0x50c734=0x24 0x50c728=0x1f81fb60 0x50c72c=0x1174"
    ),
}
_XIDS = {"xid79": 79, "xid13": 13}


def fault_events(cluster: Cluster, faults: Sequence[Fault]) -> Iterator[Event]:
    """One event for each fault that leaves a line; `seq` is for the caller to number."""
    for count, fault in enumerate(faults):
        if fault.what.name in _XIDS:
            yield _xid(cluster, fault, _XIDS[fault.what.name], count)
        elif fault.what.name == "usercode":
            yield _usercode(cluster, fault)


def _xid(cluster: Cluster, fault: Fault, code: int, count: int) -> Event:
    pci, row = pci_address(fault.gpu), lookup(code)
    assert row is not None
    line = f"{dmesg_time(fault.onset_s)} {XID_TEXTS[code].format(pci=pci)}"
    return Event(
        at=fault.onset_s, node=cluster.names[fault.place], source="kernel", started_at=0.0, seq=0,
        type="xid", code=code, entity=f"pci:{pci}", text=line, severity=row.severity,
        class_=row.class_, boot_id=cluster.boot_id(fault.place), kmsg_seq=1_842 + count,
        pid=48213 if code == 13 else None, process="pt_main_thread" if code == 13 else None,
    )  # fmt: skip


def _usercode(cluster: Cluster, fault: Fault) -> Event:
    rank = fault.place * cluster.gpus + fault.gpu
    return Event(
        at=fault.onset_s, node="", source="training", started_at=0.0, seq=0, type="process",
        text=traceback_lines(rank)[-1], severity="critical", class_="user_code",
        entity=f"rank:{rank}", job=JOB,
    )  # fmt: skip


def traceback_lines(rank: int) -> list[str]:
    """The traceback as torch prints it, its rank before each line; collectors keep the last."""
    return [f"[rank{rank}]: {line}" for line in TRACEBACK.split("\n")]


def dmesg_time(at_s: float) -> str:
    """The time as `dmesg --time-format iso` prints it, UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S,%f+00:00")
