"""Xid lines that machines have printed, and what has to be read in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.kernel_log import KernelEvent, read_line

LINES = Path(__file__).parents[1] / "data" / "xid_lines.jsonl"


def cases() -> list[Any]:
    rows = [json.loads(line) for line in LINES.read_text("utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows]


@pytest.mark.parametrize("row", cases())
def test_a_line_seen_in_the_wild_is_read_right(row: dict[str, Any]) -> None:
    found = read_line(row["raw"].encode(), row["id"])
    if row["cls"] == "info":
        assert not isinstance(found, KernelEvent)
        return
    assert isinstance(found, KernelEvent)
    assert (row["code"], row["pci"], row["pid"], row["name"]) == (
        found.code, found.pci, found.pid, found.process,
    )  # fmt: skip
    assert found.text == row["raw"].strip("\n")
