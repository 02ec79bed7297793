"""A switch's syslog into events: of the node behind a port where the topology names one. Pure.

A switch sees the far end of a node's link, and its lines count as the far end's: what the node says
of the same drop is the same drop (`detectors.flap`). Of a port that nobody maps only the switch is
known, so its lines accuse nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.kernel.times import Clock
from collectors.switch.forms import FORMS, SwitchForm, port_name
from telemetry.codec import rejected
from telemetry.records import SWITCH, Event, Rejected, Severity

LINE_BYTES_MAX = 65_536
TEXT_MAX = 4_096
PORTS_MAX = 4_096
SAME_S = 1.0  # a relay's copy of a line follows within this
NO_DATE = "no date"

_MARKED = re.compile(b"|".join(sorted({re.escape(form.marker) for form in FORMS})))
_HHMMSS = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = re.compile(rf"(?P<day>\d{{4}}-\d\d-\d\d)[T ]{_HHMMSS} ?(?P<offset>Z|[+-]\d\d:?\d\d)?")
_WORDED = re.compile(
    rf"(?:(?P<year>20\d\d) )?\b(?P<month>[A-Z][a-z]{{2}}) {{1,2}}(?P<date>\d{{1,2}})"
    rf"(?: (?P<later>20\d\d))? {_HHMMSS}"
)
_STAMP_MAX = 96  # characters before which a line's time begins

Ports = Mapping[str, tuple[str, str]]
"""Port as its switch names it -> (node, NIC)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLine:
    """What a line says.

    port   in the switch's own long form, "" where the line is of the switch itself
    part   of the switch: "Power supply 2"
    why    the switch's reason, or which optical value is out of range
    line   its number in the file, from 1
    """

    class_: str
    severity: Severity
    text: str
    at_s: float | None
    port: str = ""
    part: str = ""
    why: str = ""
    line: int = 0

    def event(self, switch: str, ports: Ports, at_s: float) -> Event:
        """The record: of the node behind the port, else of the switch (node "")."""
        node, nic = ports.get(self.port, ("", ""))
        what = self.port or self.part
        own = f"switch:{switch}/{what}" if what else f"switch:{switch}"
        entity = f"nic:{nic}" if node else own
        said = {"switch": switch, "port": self.port, "part": self.part, "why": self.why}
        return Event(
            at=at_s, node=node, source=SWITCH, started_at=0.0, seq=0, type="nic",
            severity=self.severity, class_=self.class_, text=self.text, entity=entity,
            details={name: value for name, value in said.items() if value},
        )  # fmt: skip


@dataclass(slots=True)
class SwitchLog:
    """One switch's log, line by line.

    name   for the places of what is rejected: "switch/leaf1.log"
    clock  what is known of its times
    """

    name: str
    clock: Clock = field(default_factory=Clock)
    _last: dict[tuple[str, str], float] = field(default_factory=dict)

    def read(self, lines: Iterable[bytes]) -> Iterator[SwitchLine | Rejected]:
        """What the lines say, the copies of a relay left out; an ordinary line says nothing."""
        for number, data in enumerate(lines, 1):
            if len(data) > LINE_BYTES_MAX:
                yield rejected("line too long", data, f"{self.name}:{number}")
            else:
                yield from self.line(data, number)

    def line(self, data: bytes, number: int) -> Iterator[SwitchLine]:
        """What one line says."""
        if _MARKED.search(data) is not None:
            said = self._found(data.decode("utf-8", "replace").strip("\r\n\x00 "), number)
            if said is not None and not self._is_copy(said):
                yield said

    def _found(self, text: str, number: int) -> SwitchLine | None:
        for form in FORMS:
            found = form.pattern.search(text, 0, LINE_BYTES_MAX)
            if found is not None:
                return self._said(form, found, text, number)
        return None

    def _said(
        self, form: SwitchForm, found: re.Match[str], text: str, number: int
    ) -> SwitchLine:  # fmt: skip
        groups = found.groupdict()
        over = groups.get("over") is not None
        return SwitchLine(
            class_=form.ended if over else form.class_,
            severity="info" if over else form.severity,
            text=text[:TEXT_MAX], at_s=self._time(text[: found.start()][:_STAMP_MAX]),
            port=port_name(groups.get("port") or ""), part=(groups.get("part") or "").strip(),
            why=(groups.get("why") or "").strip(), line=number,
        )  # fmt: skip

    def _time(self, head: str) -> float | None:
        """The first time in front of the message; a zone's letters ("EDT") are not read."""
        found = _ISO.search(head)
        if found is not None:
            return self.clock.iso(*found.group("day", "clock", "fraction", "offset"))
        found = _WORDED.search(head)
        if found is None:
            return None
        month, date, clock, year, later, fraction = found.group(
            "month", "date", "clock", "year", "later", "fraction"
        )
        return self.clock.worded(month, date, clock, year or later, fraction)

    def _is_copy(self, said: SwitchLine) -> bool:
        if said.at_s is None:
            return False
        key = (said.port or said.part, said.class_)
        before_s = self._last.pop(key, None)
        self._last[key] = said.at_s
        if len(self._last) > PORTS_MAX:
            del self._last[next(iter(self._last))]
        # Up and down again within the second is a drop of its own.
        other = {"link_down": "link_up", "link_up": "link_down"}.get(said.class_, "")
        if before_s is None or abs(said.at_s - before_s) > SAME_S:
            return False
        return self._last.get((key[0], other), before_s - 1.0) < before_s


def records(
    log: SwitchLog, lines: Iterable[bytes], switch: str, ports: Ports
) -> Iterator[Event | Rejected]:  # fmt: skip
    """A whole log of one switch."""
    for said in log.read(lines):
        if isinstance(said, Rejected):
            yield said
        elif said.at_s is None:
            yield rejected(NO_DATE, said.text.encode(), f"{log.name}:{said.line}")
        else:
            yield said.event(switch, ports, said.at_s)


def as_object(said: SwitchLine, file: str) -> dict[str, Any]:
    """As `nodewarden parse nic` prints it."""
    shown = {
        "file": file, "type": "event", "class": said.class_, "severity": said.severity,
        "at": said.at_s, "device": "port" if said.port else "switch", "entity": said.port,
        "text": said.text,
    }  # fmt: skip
    more = {"part": said.part, "why": said.why}
    return shown | {name: value for name, value in more.items() if value}
