"""What tools print of GPUs: nvidia-smi's CSV and XML, rocm-smi's JSON, dcgmi dmon. Pure.

`[N/A]`, `[Not Supported]`, `Unknown Error` and `ERR!` are missing values, never 0. The XML is read
without entities: a document that declares one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.parsers import expat  # entities are refused, external ones never fetched

import msgspec

from collectors.missing import missing_reason
from collectors.series import clean_one
from collectors.smi_names import BY_CSV, BY_DMON, NAMES, REASON_BITS, UNITS, SmiName
from telemetry.codec import rejected
from telemetry.metrics import BY_NAME, Metric
from telemetry.records import Rejected

LINE_BYTES_MAX = 65_536
DOCUMENT_BYTES_MAX = 64 << 20
DEPTH_MAX = 32
TEXT_MAX = 400
GPUS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class SmiReading:
    """One value of one GPU.

    name     as the tool has it
    value    in the catalogue's unit, None missing
    missing  why: "not available", "not supported", "error", "range", ...
    """

    name: str
    metric: Metric
    entity: str
    value: float | None
    missing: str = ""


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """A GPU's names, "" where the tool does not print one; pci as "0000:c3:00"."""

    entity: str
    uuid: str = ""
    index: str = ""
    pci: str = ""
    product: str = ""


SmiSaid = SmiReading | SmiGpu | Rejected

_NUMBER = re.compile(
    r"\(?([-+]?\d{1,20}(?:\.\d{1,9})?(?:[eE][-+]?\d{1,3})?)\s?([A-Za-z%/]{0,6})\)?"
)
_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})")
_PSTATE = re.compile(r"P(\d{1,2})")
_YES = {"yes": 1.0, "no": 0.0, "active": 1.0, "enabled": 1.0, "disabled": 0.0}


def read_value(row: SmiName, name: str, entity: str, text: str) -> SmiReading | str:
    """One printed value; why it is broken where it is neither number nor a word for "none"."""
    metric = BY_NAME[row.metric]
    word = text.strip()[:TEXT_MAX]
    reason = missing_reason(word)
    if reason is not None:
        return SmiReading(name, metric, entity, None, reason)
    value = _number(word, row.scale)
    if value is None:
        return f"{name}: the value is no number"
    cleaned, missing = clean_one(msgspec.structs.replace(metric, scale=1.0), value)
    return SmiReading(name, metric, entity, cleaned, missing)


def _number(word: str, scale: float) -> float | None:
    found = _NUMBER.fullmatch(word)
    if found is not None:
        return float(found[1]) * scale * UNITS.get(found[2], 1.0)
    for pattern, base in ((_HEX, 16), (_PSTATE, 10)):
        found = pattern.fullmatch(word)
        if found is not None:
            return float(int(found[1], base))
    return _YES.get(word.lower())


_PCI = re.compile(r"(?:[0-9a-fA-F]{4})?([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.\d")


def pci_of(text: str) -> str:
    """ "00000000:C3:00.0" as "0000:c3:00", "" for anything else."""
    found = _PCI.fullmatch(text.strip())
    return ":".join(found.groups()).lower() if found is not None else ""


def _named(uuid: str, index: str, pci: str) -> str:
    if uuid and missing_reason(uuid) is None:
        return uuid
    return f"gpu{index}" if index else f"pci:{pci}" if pci else ""


# --- nvidia-smi --query-gpu=... --format=csv ---

_CSV_IDENTITY = frozenset({"uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id", "name",
                           "gpu_name", "serial", "gpu_serial"})  # fmt: skip


def is_csv_header(line: str) -> bool:
    """Whether a line names the columns of a query."""
    names = _columns(line)
    return len(names) > 1 and any(
        name in BY_CSV or name in ("uuid", "pci.bus_id") for name in names
    )


def _columns(line: str) -> list[str]:
    return [cell.strip().partition(" [")[0].strip().lower() for cell in line.split(",")]


def read_csv(lines: Iterable[bytes], place: str) -> Iterator[SmiSaid]:
    """Rows under their header; a header may come again (`-l 5`)."""
    header: list[str] = []
    for at, line in enumerate(lines, 1):
        text = line.decode("utf-8", "replace").strip("\r\n\x00 ")
        if not text:
            continue
        if len(line) > LINE_BYTES_MAX:
            yield rejected("line too long", line, f"{place}:{at}")
        elif is_csv_header(text):
            header = _columns(text)
        elif not header:
            yield rejected("no header names the columns", line, f"{place}:{at}")
        else:
            cells = [cell.strip() for cell in text.split(",")]
            if len(cells) != len(header):
                yield rejected(f"{len(cells)} values under {len(header)} names", line,
                               f"{place}:{at}")  # fmt: skip
            else:
                yield from _csv_row(dict(zip(header, cells, strict=True)), line, f"{place}:{at}")


def _csv_row(row: Mapping[str, str], line: bytes, place: str) -> Iterator[SmiSaid]:
    uuid = row.get("uuid", row.get("gpu_uuid", ""))
    index, pci = row.get("index", ""), pci_of(row.get("pci.bus_id", row.get("gpu_bus_id", "")))
    entity = _named(uuid, index, pci)
    if not entity:
        yield rejected("no column names the GPU", line, place)
        return
    yield SmiGpu(entity, uuid, index, pci, row.get("name", row.get("gpu_name", "")))
    for name, text in row.items():
        known = BY_CSV.get(name)
        if known is not None:
            said = read_value(known, name, entity, text)
            yield rejected(said, line, place) if isinstance(said, str) else said


# --- nvidia-smi -q -x ---


class _Refused(Exception):
    """The document is none that we read; its text says why."""


class _Gpus:
    """Expat's handlers: the leaves of each <gpu>, and of each of its MIG devices."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.gpus: list[dict[str, str]] = []
        self.parts: list[list[dict[str, str]]] = []
        self._text = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """<name ...>"""
        if len(self.path) >= DEPTH_MAX:
            raise _Refused("the XML is nested too deep")
        if not self.path and name != "nvidia_smi_log":
            raise _Refused(f"the XML is no nvidia_smi_log but {name[:40]!r}")
        self.path.append(name)
        self._text = ""
        if self.path[1:] == ["gpu"]:
            if len(self.gpus) >= GPUS_MAX:
                raise _Refused("too many GPUs")
            self.gpus.append({"@id": attributes.get("id", "")})
            self.parts.append([])
        elif name == "mig_device" and self.parts:
            self.parts[-1].append({})

    def text(self, data: str) -> None:
        """What stands between the tags."""
        if len(self._text) < TEXT_MAX:
            self._text += data[:TEXT_MAX]

    def end(self, name: str) -> None:
        """</name>"""
        path, word = self.path, self._text.strip()
        if len(path) > 2 and path[1] == "gpu" and word:
            if "mig_device" in path:
                inside = path[path.index("mig_device") + 1 :]
                if self.parts[-1] and inside:
                    self.parts[-1][-1].setdefault("/".join(inside), word)
            else:
                self.gpus[-1].setdefault("/".join(path[2:]), word)
        self._text = ""
        path.pop()

    def entity(self, *_: object) -> None:
        """<!ENTITY ...>: bombs and foreign files come this way, nvidia-smi never does."""
        raise _Refused("the XML declares an entity")


def read_xml(pieces: Iterable[bytes], place: str) -> Iterator[SmiSaid]:
    """All GPUs of one document; of a torn one those that are whole."""
    gpus, size = _Gpus(), 0
    parser = expat.ParserCreate()
    parser.StartElementHandler = gpus.start
    parser.EndElementHandler = gpus.end
    parser.CharacterDataHandler = gpus.text
    parser.EntityDeclHandler = gpus.entity
    fault, tail = "", b""
    try:
        for piece in pieces:
            size += len(piece)
            tail = piece[-TEXT_MAX:]
            if size > DOCUMENT_BYTES_MAX:
                raise _Refused("the XML is too long")
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, _Refused, ValueError, LookupError) as error:
        fault = f"{error}"[:TEXT_MAX]
    if fault:
        yield rejected(f"XML: {fault}", tail, place)
    whole = gpus.gpus[:-1] if fault and len(gpus.path) > 1 else gpus.gpus
    for leaves, parts in zip(whole, gpus.parts, strict=False):
        yield from _xml_gpu(leaves, parts, place)


def _xml_gpu(
    leaves: Mapping[str, str], parts: list[dict[str, str]], place: str
) -> Iterator[SmiSaid]:
    uuid, pci = leaves.get("uuid", ""), pci_of(leaves.get("@id", ""))
    entity = _named(uuid, "", pci)
    yield SmiGpu(entity, uuid, leaves.get("minor_number", ""), pci, leaves.get("product_name", ""))
    yield from _xml_rows(leaves, entity, place)
    mask = _mask(leaves)
    if mask is not None:
        name, metric = "clocks_event_reasons", BY_NAME["gpu_throttle_reasons_mask"]
        yield SmiReading(name, metric, entity, float(mask))
    for part in parts:
        instance = part.get("gpu_instance_id", "")
        if instance:
            yield from _xml_rows(part, f"{entity}/{instance}", place, ("fb_memory_usage/",))


def _xml_rows(
    leaves: Mapping[str, str], entity: str, place: str, under: tuple[str, ...] = ("",)
) -> Iterator[SmiSaid]:
    for row in NAMES:
        there = [path for path in row.xml if path in leaves and path.startswith(under)]
        if not there:
            continue
        said = read_value(row, there[0], entity, leaves[there[0]])
        for path in there[1:] if row.added else ():
            said = _sum(said, read_value(row, path, entity, leaves[path]))
        text = f"{there[0]}: {leaves[there[0]]}".encode()
        yield rejected(said, text, place) if isinstance(said, str) else said


def _sum(one: SmiReading | str, other: SmiReading | str) -> SmiReading | str:
    """Both counted together; what cannot be counted is not 0."""
    if isinstance(one, str) or isinstance(other, str):
        return one if isinstance(one, str) else other
    if one.value is None or other.value is None:
        return one if one.value is not None else other
    return SmiReading(one.name, one.metric, one.entity, one.value + other.value)


def _mask(leaves: Mapping[str, str]) -> int | None:
    mask, seen = 0, False
    for path, word in leaves.items():
        parent, _, leaf = path.rpartition("/")
        if parent in ("clocks_event_reasons", "clocks_throttle_reasons"):
            for prefix in ("clocks_event_reason_", "clocks_event_reasons_",
                           "clocks_throttle_reason_", "clocks_throttle_reasons_"):  # fmt: skip
                bit = REASON_BITS.get(leaf.removeprefix(prefix), 0)
                if bit and leaf.startswith(prefix):
                    seen = True
                    mask |= bit if word == "Active" else 0
    return mask if seen else None


# --- rocm-smi --json, hy-smi --json ---


def read_rocm(data: bytes, place: str) -> Iterator[SmiSaid]:
    """All cards of one document; keys differ between versions, each is optional."""
    try:
        cards = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield rejected(f"JSON: {error}"[:TEXT_MAX], data, place)
        return
    if not isinstance(cards, dict):
        yield rejected("JSON: no object of cards", data, place)
        return
    for card, fields in list(cards.items())[:GPUS_MAX]:
        found = re.fullmatch(r"(?:card|dcu|hcu)(\d{1,4})", str(card))
        if found is not None and isinstance(fields, dict):
            yield from _rocm_card(found[1], {str(k): str(v) for k, v in fields.items()}, place)


def _rocm_card(index: str, fields: Mapping[str, str], place: str) -> Iterator[SmiSaid]:
    pci = pci_of(fields.get("PCI Bus", ""))
    unique = fields.get("Unique ID", "")
    uuid = "" if missing_reason(unique) is not None else unique
    entity = _named(uuid, index, pci)
    yield SmiGpu(entity, uuid, index, pci, fields.get("Card series", fields.get("Card Series", "")))
    for row in NAMES:
        there = [key for key in row.rocm if key in fields]
        if there:
            said = read_value(row, there[0], entity, fields[there[0]])
            if isinstance(said, SmiReading) and row.metric == "gpu_power_watts" and not said.value:
                said = SmiReading(said.name, said.metric, entity, None, "not supported")
            text = f"{there[0]}: {fields[there[0]]}".encode()
            yield rejected(said, text, place) if isinstance(said, str) else said


# --- dcgmi dmon ---

_ENTITY = re.compile(r"(GPU|GPU-I|GPU-CI|Switch|CPU|Core|NvLink|Link)\s{1,8}(\d{1,4})\s{1,64}(.*)")


def read_dmon(lines: Iterable[bytes], place: str) -> Iterator[SmiSaid]:
    """Rows under `#Entity`; other entities than GPUs are not ours."""
    names: list[str] = []
    for at, line in enumerate(lines, 1):
        text = line.decode("utf-8", "replace").strip("\r\n\x00 ")
        if text.startswith("#"):
            names = text.lstrip("# ").split()[1:]
            continue
        found = _ENTITY.fullmatch(text[:LINE_BYTES_MAX])
        if found is None or found[1] != "GPU":
            continue
        words = found[3].split()
        if len(words) != len(names):
            yield rejected(f"{len(words)} values under {len(names)} names", line, f"{place}:{at}")
            continue
        for name, word in zip(names, words, strict=True):
            row = BY_DMON.get(name)
            if row is not None:
                said = read_value(row, name, f"gpu{found[2]}", word)
                yield rejected(said, line, f"{place}:{at}") if isinstance(said, str) else said
