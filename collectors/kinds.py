"""What `nodewarden parse` can read: a kind is a row; its reader is pure and lives in its module.

A reader takes the file's name and its bytes in pieces and gives one JSON-able object a record,
each with "file" and "type". An ordinary line gives nothing, a recognised but broken one an object
of type "rejected" with "reason" and "text". No bytes make a reader raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from typing import Any

from collectors.collectives.reader import read_collectives
from collectors.exporter_forms import exporter_objects
from collectors.kernel_log import objects as kernel_objects
from collectors.nic import nic_objects
from collectors.pyspy import read_stacks
from collectors.slurm import read_slurm
from collectors.training.objects import read_training

Reader = Callable[[str, Iterable[bytes]], Iterator[dict[str, Any]]]
DatedReader = Callable[[str, Iterable[bytes], tzinfo], Iterator[dict[str, Any]]]

DATED: dict[str, DatedReader] = {
    "kernel": kernel_objects,
    "nic": nic_objects,
    "slurm": read_slurm,
    "training": read_training,
}
"""Kinds with times that may name no zone."""

KINDS: dict[str, Reader] = {
    "collectives": read_collectives,
    "exporter": exporter_objects,
    "kernel": kernel_objects,
    "nic": nic_objects,
    "slurm": read_slurm,
    "stacks": read_stacks,
    "training": read_training,
}
