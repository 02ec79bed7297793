"""Kernel lines of the simulator are what our own parser makes of their text."""

from __future__ import annotations

import pytest

from collectors.kernel_log import KernelEvent, read_line
from evaluation.cluster import Cluster
from evaluation.faults import KINDS, FaultSpec, place_faults
from evaluation.incidentals import fault_events

END_S = 1_790_010_000.0
WITH_LINES = [name for name, what in KINDS.items() if what.lines]


@pytest.mark.parametrize("kind", WITH_LINES)
def test_a_line_reads_as_the_event_that_it_is(kind: str) -> None:
    extra = KINDS[kind].extra_port
    cluster = Cluster(nodes=8, gpus=8, seed=1, extra_port=extra)
    faults = place_faults([FaultSpec(kind, "n003", 0.0)], cluster, END_S - 6_000.0, END_S)
    events = [e for e in fault_events(cluster, faults, END_S) if e.source == "kernel"]
    assert events
    for event in events:
        line = read_line(event.text.encode(), "kernel.log:1")
        assert isinstance(line, KernelEvent), (event.text, line)
        read = line.event(event.node, line.at_s or 0.0)
        assert read.at == pytest.approx(event.at, abs=0.001)
        assert (read.type, read.code, read.severity, read.class_, read.entity, read.pid) == (
            event.type, event.code, event.severity, event.class_, event.entity, event.pid,
        )  # fmt: skip
