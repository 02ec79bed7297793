"""The Xid catalogue: what each code of the NVIDIA driver means and what is to be done.

The vendor's remedy, GPUd's and the use that Aegis makes of a code stand in separate columns;
`wins` says which of them is followed where they differ, and why. Adding a code is adding a row to
`xids.tsv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

import msgspec

from telemetry.findings import Kind
from telemetry.records import Severity


class XidRow(msgspec.Struct, frozen=True, kw_only=True):
    """One code.

    class_              "app", "app_driver", "driver", "firmware", "gpu", "memory", "memory_hint",
                        "bus", "link", "link5", "power", "symptom", "confidential", "meta",
                        "info", "unused", "unknown"
    nvidia              the vendor's immediate remedy, "" where not published
    nvidia_investigate  the vendor's remedy afterwards
    gpud                GPUd's severity and remedy
    aegis               what Aegis takes the code for, "" where it does not name it
    advice              what we tell the operator
    wins                which source is followed, and why
    isolate_on_one      one event proves a machine fault: the node leaves the job at once
    kind                the incident kind that it speaks for
    """

    code: int
    mnemonic: str
    meaning: str
    class_: str = msgspec.field(name="class")
    nvidia: str
    nvidia_investigate: str
    gpud: str
    aegis: str
    advice: str
    wins: str
    isolate_on_one: bool
    severity: Severity
    kind: Kind


def lookup(code: int) -> XidRow | None:
    """The row of `code`, None for a code that no source knows."""
    return catalogue().get(code)


@cache
def catalogue() -> Mapping[int, XidRow]:
    """All rows by code, in ascending order; read once from the package."""
    text = resources.files("telemetry").joinpath("xids.tsv").read_text(encoding="utf-8")
    header, *lines = text.splitlines()
    names = header.split("\t")
    rows = [_row(dict(zip(names, line.split("\t"), strict=True))) for line in lines]
    return MappingProxyType({row.code: row for row in sorted(rows, key=lambda row: row.code)})


def _row(fields: dict[str, str]) -> XidRow:
    typed = {**fields, "isolate_on_one": {"yes": True, "no": False}[fields["isolate_on_one"]]}
    return msgspec.convert(typed, XidRow, strict=False)
