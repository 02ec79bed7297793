"""A simulated run in the files that the tools of a site write."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from evaluation.cluster import JOB, Cluster
from evaluation.incidentals import dmesg_time
from evaluation.places import fresh_directory, write_json
from evaluation.series import SeriesWriter
from evaluation.simulator import DRIVER, Simulation
from evaluation.trainlog import failure_text, launch_text, step_text
from telemetry.records import Event, Frame, Steps


def write_capture(
    run: Simulation, out: Path, *, compress: bool = False, metrics: Sequence[str] | None = None
) -> None:
    """The run as a capture with its truth; `metrics` limits the series to these catalogue names.

    compress   write `.om.gz` instead of `.om`
    Raises InputError where `out` is not an empty or new directory.
    """
    fresh_directory(out)
    cluster = run.cluster
    for directory in ("metrics", "kernel", f"training/{JOB}"):
        (out / directory).mkdir(parents=True)
    for name in cluster.names:
        (out / "kernel" / f"{name}.log").write_text(_kernel_head(run.start_s), encoding="utf-8")
    with ExitStack() as stack:
        spill = stack.enter_context(tempfile.TemporaryDirectory(prefix=".spill-", dir=out))
        series = {source: SeriesWriter(Path(spill), cluster, metrics) for source in run.interval_s}
        log = stack.enter_context(
            (out / "training" / JOB / "train.log").open("w", encoding="utf-8")
        )
        log.write(launch_text(cluster, run.start_s))
        for _, record in run.records():
            if isinstance(record, Frame):
                series[record.source].add(record)
            elif isinstance(record, Steps) and record.node == "":
                log.write(step_text(record))
            elif isinstance(record, Event) and record.source == "training":
                log.write(failure_text(record))
            elif isinstance(record, Event):
                with (out / "kernel" / f"{record.node}.log").open("a", encoding="utf-8") as kernel:
                    kernel.write(record.text + "\n")
        for source, writer in series.items():
            name = f"{source}.om.gz" if compress else f"{source}.om"
            with _output(out / "metrics" / name, compress) as stream:
                writer.write(stream)
    write_json(out / "jobs.json", jobs_json(cluster, run.start_s))
    write_json(out / "capture.json", {"cluster": run.settings.cluster})
    write_json(out / "truth.json", run.truth())


def jobs_json(cluster: Cluster, start_s: float) -> dict[str, Any]:
    """The one job and the topology."""
    job = cluster.job(start_s)
    assert job.parallel is not None
    return {
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "nodes": list(cluster.names),
                "start": start_s,
                "gpus_per_node": job.gpus_per_node,
                "parallel": {
                    "tp": job.parallel.tp,
                    "pp": job.parallel.pp,
                    "dp": job.parallel.dp,
                    "ep": job.parallel.ep,
                },
                "ranks": {node.name: node.ranks for node in job.nodes},
                "stages": {node.name: node.stage for node in job.nodes},
            }
        ],
        "topology": {
            info.name: {"rack": info.rack, "leaf": info.leaf, "pod": info.pod}
            for info in cluster.node_infos()
        },
    }


def _kernel_head(start_s: float) -> str:
    """Ordinary lines, as every kernel log has them."""
    stamp = dmesg_time(start_s)
    return (
        f"{stamp} nvidia-nvlink: Nvlink Core is being initialized, major device number 511\n"
        f"{stamp} NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}\n"
    )


@contextmanager
def _output(path: Path, compress: bool) -> Iterator[BinaryIO]:
    """The file, or a gzip stream into it that holds no time of writing."""
    with path.open("wb") as raw:
        if not compress:
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as packed:
            yield cast(BinaryIO, packed)
