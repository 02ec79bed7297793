"""Every detector has a page, its table is current, and the template runs as it is printed."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from detectors.base import Detector
from detectors.registry import detectors
from telemetry.settings import EngineSettings
from tests.fakes import cluster, tick
from tests.parameter_tables import PAGES, table, with_tables

NAMES = [detector.name for detector in detectors(EngineSettings())]
HEADINGS = ["Rule", "Source", "Parameters", "When it is wrong", "How to tune it"]


@pytest.mark.parametrize("name", NAMES)
def test_every_detector_has_its_page_with_a_current_table(name: str) -> None:
    """Write the tables anew with `python -m tests.parameter_tables`."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")

    assert HEADINGS == re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert f"<!-- parameters: {name} -->" in page
    assert page == with_tables(page)


def test_there_is_no_page_of_a_detector_that_does_not_run() -> None:
    assert {*NAMES, "TEMPLATE"} == {path.stem for path in PAGES.glob("*.md")}


def test_a_table_has_defaults_units_and_remarks() -> None:
    assert "| `engine.zscore.window_s` | 600 | seconds |  |" in table("zscore")
    assert "| `engine.robust_peers.calm_sigmas` | 3 | sigmas | a higher" in table("robust_peers")


def test_keys_that_the_pages_name_exist() -> None:
    """In backticks and with a unit at the end."""
    known = set(re.findall(r"engine\.\w+\.(\w+)", "\n".join(map(table, NAMES))))
    for path in PAGES.glob("*.md"):
        page = path.read_text(encoding="utf-8")
        for key in re.findall(r"`(\w+_(?:s|share|sigmas|samples|steps|ratio|ticks))`", page):
            assert key in known, (path.stem, key)


def example() -> Detector:
    page = (PAGES / "TEMPLATE.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module: dict[str, Any] = {}
    exec(compile(code, "TEMPLATE.md", "exec"), module)
    made: Detector = module["Example"]()
    return made


def test_the_template_runs_and_keeps_the_promises() -> None:
    nodes, view = ["n00", "n01"], cluster(2)
    good = tick("gpu_sm_clock_mhz", np.full((3, 2), 1_755.0), nodes, 10.0)
    bad = tick("gpu_sm_clock_mhz", np.array([[1_755.0, 210.0]] * 3), nodes, 20.0)
    first, second = example(), example()

    assert [] == list(first.on_tick(good, view, 10.0))
    assert ["n01"] == [seen.node for seen in first.on_tick(bad, view, 20.0)]
    assert [] == list(first.on_tick(bad, view, 30.0))
    second.restore(json.loads(json.dumps(first.snapshot())))
    assert [False] == [seen.active for seen in second.on_tick(good, view, 40.0)]
