"""`nodewarden parse exporter`: which form a text about GPUs has, and flat objects of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from collectors.exposition import Sample, ScrapeParser
from collectors.files import lines
from collectors.gpu_logs import CperEvent, MonitorReading, read_cper, read_monitor
from collectors.names import NODE_LABELS
from collectors.series import Workload
from collectors.smi import (
    DOCUMENT_BYTES_MAX,
    LINE_BYTES_MAX,
    SmiGpu,
    SmiReading,
    is_csv_header,
    read_csv,
    read_dmon,
    read_rocm,
    read_xml,
)
from telemetry.codec import rejected
from telemetry.records import Rejected

SNIFFED_BYTES = 4_096
_BOM = b"\xef\xbb\xbf"

Object = dict[str, object]
Found = Sample | SmiReading | SmiGpu | MonitorReading | CperEvent | Rejected


@dataclass(frozen=True, slots=True)
class ExporterForm:
    """One form of text.

    fits   whether a text with this beginning (white space before it left out) is of the form
    read   the pieces of the text, its place -> what it says
    """

    name: str
    fits: Callable[[bytes], bool]
    read: Callable[[Iterator[bytes], str], Iterator[Found]]
    example: str
    source: str


def exporter_objects(file: str, pieces: Iterable[bytes]) -> Iterator[Object]:
    """One object a value, GPU, event or broken line."""
    source = iter(pieces)
    start = b""
    while len(start.lstrip()) < SNIFFED_BYTES and (piece := next(source, b"")):
        start += piece
    start = start.removeprefix(_BOM)
    if not start.strip():
        return
    form = next(form for form in FORMS if form.fits(start.lstrip()[:SNIFFED_BYTES]))
    for found in form.read(chain((start,), source), file):
        yield _object(file, found)


def _first_line(start: bytes) -> str:
    return start.partition(b"\n")[0].decode("utf-8", "replace").strip()


def _fits_csv(start: bytes) -> bool:
    return b"{" not in start.partition(b"\n")[0] and is_csv_header(_first_line(start))


def _fits_monitor(start: bytes) -> bool:
    first = _first_line(start)
    return first.startswith('{"') and ("gpu_usage:" in first or '"time":' in first)


def _read_rocm(pieces: Iterator[bytes], place: str) -> Iterator[Found]:
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > DOCUMENT_BYTES_MAX:
            yield rejected("the JSON is too long", bytes(data[:SNIFFED_BYTES]), place)
            return
    yield from read_rocm(bytes(data), place)


def _stripped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Without white space before the XML declaration, which expat does not take."""
    first = next(pieces, b"")
    yield first.lstrip()
    yield from pieces


FORMS: tuple[ExporterForm, ...] = (
    ExporterForm("nvidia-smi -q -x", lambda start: start.startswith(b"<"),
                 lambda pieces, place: read_xml(_stripped(pieces), place),
                 "<nvidia_smi_log> ... <gpu_temp>27 C</gpu_temp>", "influxdata/telegraf testdata"),
    ExporterForm("SuperBench's monitor", _fits_monitor,
                 lambda pieces, place: read_monitor(lines(pieces, LINE_BYTES_MAX), place),
                 '{"time": "2021-12-06 04:19:35", "gpu_usage:0": 56}',
                 "microsoft/superbenchmark tests"),
    ExporterForm("rocm-smi --json, hy-smi --json", lambda start: start.startswith((b"{", b"[")),
                 _read_rocm, '{"card0": {"Temperature (Sensor junction) (C)": "34.0"}}',
                 "influxdata/telegraf testdata; of hy-smi no real sample was seen"),
    ExporterForm("dcgmi dmon", lambda start: start.startswith((b"#Entity", b"# Entity")),
                 lambda pieces, place: read_dmon(lines(pieces, LINE_BYTES_MAX), place),
                 "#Entity TMPTR\nID\nGPU 0  41", "NVIDIA/dcgm-exporter issue 700"),
    ExporterForm("AMD device-metrics-exporter's log", lambda start: start.startswith(b'time="'),
                 lambda pieces, place: read_cper(lines(pieces, LINE_BYTES_MAX), place),
                 'time="2026-05-28T08:32:40Z" level=info msg="gpuuid=beff74b5 TimeStamp=...',
                 "ROCm/device-metrics-exporter issue 506"),
    ExporterForm("nvidia-smi --query-gpu --format=csv", _fits_csv,
                 lambda pieces, place: read_csv(lines(pieces, LINE_BYTES_MAX), place),
                 "uuid, temperature.gpu, memory.used [MiB]", "utkuozdemir/nvidia_gpu_exporter"),
    ExporterForm("Prometheus exposition", lambda start: True,
                 lambda pieces, place: ScrapeParser(place, every=True).read(pieces),
                 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",Hostname="n1"} 61',
                 "dcgm-exporter 1.4 to 4.x, nvidia_gpu_exporter, device-metrics-exporter,"
                 " npu-exporter, node_exporter; of dcu-exporter no real sample was seen"),
)  # fmt: skip


def _object(file: str, found: Found) -> Object:
    if isinstance(found, Rejected):
        return {"file": file, "type": "rejected", "reason": found.reason, "text": found.text,
                "place": found.place}  # fmt: skip
    if isinstance(found, Sample):
        return _of_sample(file, found)
    if isinstance(found, SmiGpu):
        return {"file": file, "type": "gpu", "entity": found.entity, "uuid": found.uuid,
                "index": found.index, "pci": found.pci, "product": found.product}  # fmt: skip
    if isinstance(found, CperEvent):
        return {"file": file, "type": "event", "entity": found.entity, "at": found.at_s,
                "said_at": found.said_at_s, "severity": found.severity, "stale": found.stale,
                "text": found.text}  # fmt: skip
    made: Object = {
        "file": file, "type": "sample", "name": found.name, "metric": found.metric.name,
        "device": "gpu", "entity": found.entity, "value": found.value, "unit": found.metric.unit,
    }  # fmt: skip
    if found.missing:
        made["missing"] = found.missing
    if isinstance(found, MonitorReading):
        made["clock"] = found.clock
    return made


_NO_WORK = Workload()


def _of_sample(file: str, found: Sample) -> Object:
    series = found.series
    metric = series.metric
    made: Object = {
        "file": file, "type": "sample", "name": series.name,
        "metric": metric.name if metric is not None else series.column or None,
        "device": series.owner.device, "entity": series.owner.entity, "value": found.value,
        "unit": metric.unit if metric is not None else "",
    }  # fmt: skip
    if found.missing:
        made["missing"] = found.missing
    if found.at_s is not None:
        made["at"] = found.at_s
    if found.repeated:
        made["repeated"] = True
    node = next((series.labels[label] for label in NODE_LABELS if series.labels.get(label)), "")
    if node:
        made["node"] = node
    code = series.labels.get("xid") or series.labels.get("err_code")
    if code:
        made["code"] = code
    work = series.workload
    if work != _NO_WORK:
        made |= {key: word for key, word in (
            ("namespace", work.namespace), ("pod", work.pod), ("container", work.container),
            ("job", work.job),
        ) if word}  # fmt: skip
    return made
