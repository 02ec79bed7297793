"""Run as a process of its own: restore a fold from published bytes, fold on, print the JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from streams.replay import Outcome, drive
from streams.snapshot import load
from telemetry.codec import decode
from telemetry.findings import Finding, Incident
from telemetry.records import Arrived
from tests.folding import fresh, printed


def main(place: Path) -> None:
    store = msgspec.msgpack.decode((place / "store").read_bytes(), type=dict[str, bytes])
    incidents, findings = msgspec.msgpack.decode(
        (place / "said").read_bytes(), type=tuple[list[Incident], list[Finding]]
    )
    outcome = Outcome({i.id: i for i in incidents}, {f.id: f for f in findings})
    found = load("main", store, fresh)
    assert found is not None
    log = []
    for line in (place / "log").read_bytes().splitlines():
        offset, arrival, text = msgspec.json.decode(line, type=tuple[int, float, str])
        log.append(Arrived(offset, arrival, decode(text.encode(), "log")))
    drive(log[found[0].offset + 1 :], found[0], outcome)
    sys.stdout.buffer.write(printed(found[0], outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
