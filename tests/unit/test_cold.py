"""A cold start: what the inventory topic holds comes back as records that the log takes."""

from __future__ import annotations

import msgspec

from streams.cold import PART_BYTES, known_before
from telemetry.codec import decode, encode
from telemetry.records import Allocation, Gpu, Hardware, Job, JobNode, NodeInfo

AT_S = 1_790_000_000.0


def test_nodes_jobs_and_hardware_come_back_as_changes() -> None:
    hardware = Hardware(
        at=AT_S - 900.0, node="n1", source="hardware", started_at=AT_S - 1e6, seq=41,
        spooled=True, boot_id="b1", gpus=[Gpu(0, "GPU-1", "0000:c3:00")],
    )  # fmt: skip
    stored = {
        "sched/n1": msgspec.json.encode(NodeInfo(name="n1", state="idle", leaf="leaf1")),
        "job/17": msgspec.json.encode(Job(id="17", nodes=[JobNode("n1")])),
        "hw/n1": encode(hardware),
    }
    nodes, jobs, known = known_before(stored, AT_S, AT_S - 5.0)
    assert isinstance(nodes, Allocation)
    assert [node.leaf for node in nodes.nodes] == ["leaf1"]
    assert isinstance(jobs, Allocation)
    assert [job.id for job in jobs.jobs] == ["17"]
    assert (nodes.listing, jobs.listing) == ("", "")  # no listing: nothing else is gone
    assert isinstance(known, Hardware)
    assert (known.gpus[0].uuid, known.boot_id, known.spooled) == ("GPU-1", "b1", False)
    assert known.at == AT_S
    streams = [(r.node, r.source, r.started_at, r.seq) for r in (nodes, jobs, known)]
    assert len(set(streams)) == 3  # the fold drops none of them as a repeat
    assert all(decode(encode(record), "") == record for record in (nodes, jobs, known))


def test_what_cannot_be_read_is_left_out_and_the_rest_is_told() -> None:
    stored = {
        "sched/n1": b"{",
        "sched/n2": msgspec.json.encode(NodeInfo(name="n2")),
        "hw/n1": b"null",
        "else/n1": b"{}",
    }
    (only,) = known_before(stored, AT_S, AT_S)
    assert isinstance(only, Allocation)
    assert [node.name for node in only.nodes] == ["n2"]


def test_many_nodes_are_cut_so_that_each_record_fits() -> None:
    count = 20_000
    stored = {
        f"sched/n{i:05d}": msgspec.json.encode(NodeInfo(name=f"n{i:05d}", rack="r" * 40))
        for i in range(count)
    }
    records = list(known_before(stored, AT_S, AT_S))
    assert len(records) > 1
    assert max(len(encode(record)) for record in records) < 2 * PART_BYTES
    assert sum(len(r.nodes) for r in records if isinstance(r, Allocation)) == count
