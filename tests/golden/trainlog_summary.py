"""What a golden of a training file holds: every object where they are few, else a summary."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from collectors.kinds import KINDS

DATA = Path(__file__).parents[1] / "data" / "trainlog"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "trainlog"
GOLDEN = Path(__file__).parent / "trainlog"
WHOLE_MAX = 20
TEXT_MAX = 160


def kind_of(name: str) -> str:
    """Which `parse` reads the file."""
    if "pyspy" in name:
        return "stacks"
    return "collectives" if name.endswith((".prom", ".json")) else "training"


def parsed(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The objects as `parse` prints them, without the file's name."""
    found = list(KINDS[kind or kind_of(path.name)](path.name, [path.read_bytes()]))
    assert {path.name} >= {one.pop("file") for one in found}
    return found


def summary(found: list[dict[str, Any]]) -> Any:
    """Plain JSON; numbers that add up to 9 digits, long texts cut."""
    if len(found) <= WHOLE_MAX:
        return [_short(one) for one in found]
    numbers: dict[str, list[float]] = {}
    for one in found:
        for name, value in one.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers.setdefault(f"{one['type']}.{name}", []).append(float(value))
    return {
        "types": dict(sorted(Counter(one["type"] for one in found).items())),
        "first": _short(found[0]), "middle": _short(found[len(found) // 2]),
        "last": _short(found[-1]),
        "sums": {name: _digits(sum(values)) for name, values in sorted(numbers.items())},
        "counts": {name: len(values) for name, values in sorted(numbers.items())},
    }  # fmt: skip


def _short(one: dict[str, Any]) -> dict[str, Any]:
    """What is missing is left out."""
    return {name: _digits(value) for name, value in one.items() if value not in (None, "", [])}


def _digits(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.13g}")
    return value[:TEXT_MAX] if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """As it comes back from a JSON file."""
    return json.loads(json.dumps(value))
