"""Counters of NICs and switches, as the kernel and the tools print them. Pure.

What is read: listings of /sys/class/infiniband and /sys/class/net (`path<TAB>content`),
`ethtool -S`, `rdma statistic` plain and JSON, perfquery, ibswinfo; beside them the lines of a
switch's syslog (`collectors.switch`). A counter that a form does not
print is absent, never zero: Ethernet without PFC has no pause counters at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

import msgspec

from collectors.files import lines
from collectors.kernel.times import Clock
from collectors.missing import missing_reason
from collectors.series import Owner, clean_one, entity_of, number
from collectors.switch.log import SwitchLine, SwitchLog, as_object
from telemetry.codec import rejected
from telemetry.metric_names import numbered
from telemetry.metrics import Metric, recognise
from telemetry.records import Rejected

LINE_BYTES_MAX = 65_536
JSON_BYTES_MAX = 64 << 20
TEXT_MAX = 200
DIGITS_MAX = 24


@dataclass(frozen=True, slots=True)
class NicReading:
    """One counter, gauge or attribute.

    device    "nic", "port" (a switch's or a card's, perfquery cannot tell) or "switch"
    entity    "mlx5_0/1", "eth0", "eth0/prio3", "0x7cfe9003009ce5b0/2"; "" where nothing names it
    value     in the catalogue's unit where `metric` is a row of it, else as printed; None missing
    missing   why there is none: "not available", "saturated", "empty", ...
    text      of attributes and states, as printed
    section   the comment above it, where a file holds several listings
    alarm     the device itself calls it an error
    """

    name: str
    metric: Metric | None
    device: str
    entity: str
    value: float | None = None
    missing: str = ""
    text: str = ""
    section: str = ""
    alarm: bool = False


Said = NicReading | str | None  # a reading, why the line is broken, nothing


@dataclass(slots=True)
class Context:
    """What lines above have said: whose counters follow."""

    device: str = "nic"
    entity: str = ""
    section: str = ""
    part: str = ""
    guid: str = ""


@dataclass(frozen=True, slots=True)
class NicForm:
    """One kind of line: what it looks like and what to make of it."""

    name: str
    pattern: re.Pattern[str]
    make: Callable[[re.Match[str], Context], Iterable[Said]]
    example: str
    source: str


def read_lines(source: Iterable[bytes], place: str) -> Iterator[NicReading | Rejected]:
    """Every form but JSON, told apart line by line; a broken line costs only itself."""
    for said in _read(source, place, None):
        if not isinstance(said, SwitchLine):
            yield said


def _read(
    source: Iterable[bytes], place: str, switch: SwitchLog | None
) -> Iterator[NicReading | SwitchLine | Rejected]:  # fmt: skip
    guid = _GUID.search(place)
    context = Context(guid=guid[0].lower() if guid else "")
    for at, line in enumerate(source, 1):
        if len(line) > LINE_BYTES_MAX:
            yield rejected("line too long", line, f"{place}:{at}")
            continue
        told = list(switch.line(line, at)) if switch is not None else []
        yield from told
        if told:
            continue
        text = line.decode("utf-8", "replace").rstrip("\r\n\x00 ")
        form, found = _match(text)
        if form is None or found is None:
            continue
        for said in form.make(found, context):
            if isinstance(said, str):
                yield rejected(said, line, f"{place}:{at}")
            elif said is not None:
                yield said


def _match(text: str) -> tuple[NicForm | None, re.Match[str] | None]:
    for form in FORMS:
        found = form.pattern.match(text)
        if found is not None:
            return form, found
    return None, None


def read_json(data: bytes, place: str) -> Iterator[NicReading | Rejected]:
    """`rdma -j statistic`: a list of links, each an object of counters."""
    try:
        links = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield rejected(f"no JSON: {error}"[:TEXT_MAX], data, place)
        return
    for link in links if isinstance(links, list) else [links]:
        if not isinstance(link, dict) or not isinstance(link.get("ifname"), str):
            yield rejected("no link of `rdma -j statistic`", data, place)
            continue
        entity = f"{link['ifname']}/{link.get('port', '')}".rstrip("/")
        for name, value in link.items():
            if name not in ("ifname", "ifindex", "port"):
                said = _counter(str(name), str(value), Context(entity=entity))
                yield rejected(said, data, place) if isinstance(said, str) else said


def _counter(name: str, word: str, context: Context) -> NicReading | str:
    """A counter by its bare name; `word` as printed."""
    metric = recognise(name)
    entity = context.entity
    if metric is not None:
        entity = entity_of(metric, name, Owner(metric.device, entity)) or numbered(name)
    reading = NicReading(name, metric, context.device, entity, section=context.section)
    reason = missing_reason(word)
    if reason is not None:
        return replace(reading, missing=reason)
    value = number(word.encode()) if len(word) <= DIGITS_MAX else None
    if value is None or value < 0.0:
        return "the value is no number"
    if metric is None:
        return replace(reading, value=value)
    cleaned, missing = clean_one(metric, value, word.encode())
    return replace(reading, value=cleaned, missing=missing)


# Settings and identities among the counters: text, whatever digits they hold.
_SETTINGS = frozenset({"lifespan"})
_STATE_METRICS = {"state": "node_infiniband_state_id",
                  "phys_state": "node_infiniband_physical_state_id"}  # fmt: skip
_PHYSICAL_WORDS = frozenset({"sleep", "polling", "disabled", "portconfigurationtraining",
                             "linkup", "linkerrorrecovery", "phy test"})  # fmt: skip
_STATE = re.compile(r"(\d{1,2}):\s*(.*)")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")
_BYTES_OF_GIGABIT = 1.25e8


def _sysfs(found: re.Match[str], context: Context) -> Iterator[Said]:
    device, port, kind, name, word = found.groups()
    context.entity = f"{device}/{port}"
    context.section = ""
    if kind is not None and name not in _SETTINGS:
        yield _counter(name, word, context)
        return
    metric = recognise(_STATE_METRICS.get(name, ""))
    state = _STATE.fullmatch(word.strip())
    rate = _RATE.match(word) if name == "rate" else None
    if metric is not None and state is not None:
        cleaned, missing = clean_one(metric, float(state[1]))
        if name == "phys_state" and state[2].strip().lower() not in _PHYSICAL_WORDS:
            cleaned, missing = None, "unknown"  # "4: ACTIVE" contradicts itself
        yield NicReading(name, metric, "nic", context.entity, cleaned, missing, state[2][:TEXT_MAX])
    elif rate is not None:
        metric = recognise("node_infiniband_rate_bytes_per_second")
        value = float(rate[1]) * _BYTES_OF_GIGABIT
        cleaned, missing = clean_one(metric, value) if metric is not None else (None, "")
        yield NicReading(name, metric, "nic", context.entity, cleaned, missing, word[:TEXT_MAX])
    else:
        yield NicReading(name, None, "nic", context.entity, text=word.strip()[:TEXT_MAX])


def _sysfs_device(found: re.Match[str], context: Context) -> Iterator[Said]:
    yield NicReading(found[2], None, "nic", found[1], text=found[3].strip()[:TEXT_MAX])


def _sysfs_net(found: re.Match[str], context: Context) -> Iterator[Said]:
    context.entity = found[1]
    yield _counter(found[2], found[3], context)


_PAIR_WORDS = re.compile(r"\s+")


def _rdma(found: re.Match[str], context: Context) -> Iterator[Said]:
    context.entity = found[1]
    context.section = ""
    words = _PAIR_WORDS.split(found[2].strip())
    for name, word in zip(words[::2], words[1::2], strict=False):
        yield _counter(name, word, context)
    if len(words) % 2 == 1 and words[-1]:
        yield "a counter without a value"


def _perfquery(found: re.Match[str], context: Context) -> Iterator[Said]:
    context.device = "port"
    context.section = ""
    context.entity = f"{context.guid or f'lid{found[1]}'}/{found[2]}"
    yield None


def _perfquery_counter(found: re.Match[str], context: Context) -> Iterator[Said]:
    name, word = found.groups()
    if name in ("PortSelect", "CounterSelect", "CounterSelect2"):
        yield None  # which counters were asked for
    else:
        context.device = "port"
        yield _counter(name, word, context)


def _section(found: re.Match[str], context: Context) -> Iterator[Said]:
    """ "# ethtool -S eth0" names the interface, another comment the listing."""
    word = found[1].strip()
    named = re.fullmatch(r"(?:\$ )?(?:sudo )?ethtool -S ([^\s]{1,64})", word)
    context.device = "nic"
    context.entity = named[1] if named is not None else ""
    context.section = "" if named is not None else word[:TEXT_MAX]
    yield None


def _listing(found: re.Match[str], context: Context) -> Iterator[Said]:
    yield None  # "NIC statistics:" says nothing of its own


def _failed(found: re.Match[str], context: Context) -> Iterator[Said]:
    yield "the tool failed"


def _ethtool(found: re.Match[str], context: Context) -> Iterator[Said]:
    yield _counter(found[1], (found[2] or "").strip(), context)


_GUID = re.compile(r"0x[0-9a-fA-F]{12,16}")
_UPTIME = re.compile(r"(?:(\d{1,5})d-)?(\d{1,2}):(\d\d):(\d\d)")
_UNIT = re.compile(r"(.{1,64}?)\s*\((W|C|rpm|d-h:m:s)\)")
_GOOD_WORDS = frozenset({"ok", "present"})


def _ibswinfo(found: re.Match[str], context: Context) -> Iterator[Said]:
    """A switch's own table: part numbers, then its power supplies, temperatures and fans."""
    inside, name, word = found[1] != "", found[2].strip(), found[3].strip()
    context.device = "switch"
    if name == "GUID":
        context.entity = word[:TEXT_MAX]
    if not inside:
        context.part = name.removesuffix(" status") if name.startswith("PSU") else ""
    name = f"{context.part} {name}" if inside and context.part else name
    unit = _UNIT.fullmatch(name)
    if unit is None:
        missing = "empty" if not word else ""
        status = name.endswith("status") or name.endswith("power")
        alarm = bool(word) and status and word.lower() not in _GOOD_WORDS
        yield NicReading(name, None, "switch", context.entity, None, missing, word[:TEXT_MAX],
                         alarm=alarm)  # fmt: skip
        return
    reason = missing_reason(word)
    value = _seconds(word) if unit[2] == "d-h:m:s" else number(word.encode()[:DIGITS_MAX])
    if reason is not None:
        yield NicReading(name, None, "switch", context.entity, None, reason)
    elif value is None:
        yield f"{name}: the value is no number"
    else:
        yield NicReading(name, None, "switch", context.entity, value)


def _seconds(word: str) -> float | None:
    found = _UPTIME.fullmatch(word)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


_NAME = r"([^/\t\n]{1,100})"
FORMS: tuple[NicForm, ...] = (
    NicForm("sysfs of an InfiniBand port", re.compile(
                r"(?:[^\t\n]{0,400}/)?([^/\t\n]{1,64})/ports/(\d{1,3})/(?:(counters|hw_counters)/)?"
                + _NAME + r"\t(.{0,400})$"), _sysfs,
            "mlx5_0/ports/1/counters/link_downed\t0", "leptonai/gpud testdata"),
    NicForm("sysfs of an InfiniBand card", re.compile(
                r"(?:[^\t\n]{0,400}/)?([^/\t\n]{1,64})/(board_id|fw_ver|hca_type|node_guid|node_desc)"
                r"\t(.{0,400})$"), _sysfs_device,
            "sys/class/infiniband/mlx5_0/fw_ver\t28.41.1000", "prometheus/procfs fixtures"),
    NicForm("sysfs of a network interface", re.compile(
                r"(?:[^\t\n]{0,400}/)?net/([^/\t\n]{1,64})/statistics/" + _NAME + r"\t(.{0,400})$"),
            _sysfs_net, "sys/class/net/eth0/statistics/rx_bytes\t1", "Linux kernel documents"),
    NicForm("rdma statistic", re.compile(r"link ([^\s/]{1,64}/\d{1,3}) ?(.*)$"), _rdma,
            "link mlx5_0/1 np_cnp_sent 0 out_of_buffer 135", "iproute2"),
    NicForm("perfquery, head", re.compile(
                r"# Port (?:extended )?counters: Lid (\d{1,6}) port (\d{1,3})"), _perfquery,
            "# Port extended counters: Lid 1719 port 1 (CapMask: 0x5300)",
            "treydock/infiniband_exporter fixtures"),
    NicForm("perfquery", re.compile(r"([A-Z][A-Za-z0-9]{1,64}):\.{1,64}(\S{0,64})"),
            _perfquery_counter, "PortXmitDiscards:................20046",
            "treydock/infiniband_exporter fixtures"),
    NicForm("ibswinfo", re.compile(r"( {0,16})([A-Za-z][^|]{0,64}?) {0,32}\| ?([^|]{0,200})$"),
            _ibswinfo, "fan status         | OK", "treydock/infiniband_exporter fixtures"),
    NicForm("comment above a listing", re.compile(r"# ?(.{0,200})$"), _section,
            "# ethtool -S eth0", "prometheus/node_exporter fixtures"),
    NicForm("ethtool -S, head", re.compile(r"NIC statistics:$"), _listing, "NIC statistics:",
            "ethtool"),
    NicForm("a tool's failure", re.compile(r"(?:ERROR|error|Cannot get|ibwarn)\b.{0,200}"), _failed,
            "ERROR: 1", "prometheus/node_exporter fixtures"),
    NicForm("ethtool -S", re.compile(r"\s{1,16}([^:\n]{1,128}):(?: (.{0,200}))?$"), _ethtool,
            "     rx_prio3_pause: 41927", "ethtool"),
)  # fmt: skip


def nic_objects(
    file: str, pieces: Iterable[bytes], tz: tzinfo = UTC
) -> Iterator[dict[str, object]]:  # fmt: skip
    """What `nodewarden parse nic` prints; `tz` of a switch's lines."""
    source = iter(pieces)
    start = b""
    while not start.strip() and (piece := next(source, b"")):
        start += piece
    found: Iterator[NicReading | SwitchLine | Rejected]
    if start.lstrip()[:1] in (b"[", b"{"):
        data = bytearray(start)
        for piece in source:
            data += piece
            if len(data) > JSON_BYTES_MAX:
                yield _object(file, rejected("the JSON is too long", bytes(data[:TEXT_MAX]), file))
                return
        found = read_json(bytes(data), file)
    else:
        switch = SwitchLog(file, Clock(tz=tz))
        found = _read(lines(_joined(start, source), LINE_BYTES_MAX), file, switch)
    for one in found:
        yield _object(file, one)


def _joined(start: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield start
    yield from rest


def _object(file: str, said: NicReading | SwitchLine | Rejected) -> dict[str, object]:
    if isinstance(said, SwitchLine):
        return as_object(said, file)
    if isinstance(said, Rejected):
        return {"file": file, "type": "rejected", "reason": said.reason, "text": said.text,
                "place": said.place}  # fmt: skip
    metric = said.metric
    kind = "gauge" if said.device == "switch" else "counter" if metric is None else metric.kind
    unit = _UNIT.fullmatch(said.name) if said.device == "switch" else None
    made: dict[str, object] = {
        "file": file, "type": "attribute" if said.value is None and not said.missing else kind,
        "name": said.name, "metric": metric.name if metric is not None else None,
        "device": said.device, "entity": said.entity, "value": said.value,
        "unit": metric.unit if metric is not None else unit[2] if unit is not None else "",
    }  # fmt: skip
    more = {"missing": said.missing, "text": said.text, "section": said.section}
    made |= {key: value for key, value in more.items() if value}
    if said.alarm:
        made["alarm"] = True
    return made
