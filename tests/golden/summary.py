"""A parser's objects as a page that a person can check: values by metric and owner."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "metrics"


def input_file(area: str, name: str) -> Path:
    """The copy in tests/data, else the one in the corpus beside the checkout, else a skip."""
    for folder in (DATA / area, CORPUS):
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is not among the copies in tests/data, and no corpus lies beside us")


def summary(objects: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts by type; each metric's values, or why there are none, by owner; what was rejected."""
    types: Counter[str] = Counter()
    metrics: dict[str, dict[str, Any]] = defaultdict(dict)
    others: Counter[str] = Counter()
    rejected: list[str] = []
    rest: list[dict[str, Any]] = []
    for one in objects:
        types[one["type"]] += 1
        if one["type"] == "rejected":
            rejected.append(f"{one['reason']}: {one['text'][:60]}")
        elif one.get("metric"):
            owner = one["entity"] + (f" {one['section']}" if one.get("section") else "")
            owner += f" {one['clock']}" if one.get("clock") else ""
            owner += " again" if one.get("repeated") else ""
            text = f" {one['text']}" if one.get("text") else ""
            value = one["value"] if one["value"] is not None else one["missing"]
            metrics[one["metric"]][owner] = f"{value}{text}" if text else value
        elif one["type"] in ("gpu", "event", "attribute") or one["device"] in ("cpu", "switch"):
            rest.append({key: value for key, value in one.items() if key != "file"})
        else:
            others[one["name"]] += 1
    made = {
        "types": dict(sorted(types.items())), "metrics": dict(sorted(metrics.items())),
        "others": dict(sorted(others.items())), "rejected": rejected, "rest": rest,
    }  # fmt: skip
    return {key: value for key, value in made.items() if value}
