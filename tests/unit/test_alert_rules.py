"""The alert rules name metrics that exist, and each alert has its line and its tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "nodewarden.rules.yml"
TESTS = ROOT / "deploy" / "prometheus" / "nodewarden.rules.test.yml"
SUFFIXES = ("_total", "_bucket", "_sum", "_count")
_NAME = re.compile(r"\bnodewarden_[a-z0-9_]+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = [rule["alert"] for rule in rules()]


def named_in_code() -> set[str]:
    """What looks like a metric in our packages; the worker's are put together from two parts."""
    text = "".join(
        path.read_text(encoding="utf-8")
        for package in ("actions", "collectors", "streams")
        for path in (ROOT / package).rglob("*metrics.py")
    )
    parts = re.findall(r'^    \("([a-z_]+)", "', text, re.MULTILINE)
    return set(_NAME.findall(text)) | {f"nodewarden_stream_{part}" for part in parts}


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    known = named_in_code()
    for name in _NAME.findall(rule["expr"]):
        plain = next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)
        assert known & {name, plain}, name


def test_each_has_a_line_of_the_runbook_and_the_runbook_no_other() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
    assert ALERTS == headings
    for rule in rules():
        assert f"docs/runbook.md#{rule['alert'].lower()}" == rule["annotations"]["runbook"]


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_it_says_how_bad_it_is_and_what_it_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook"} == set(rule["annotations"])


def expectations() -> Iterator[tuple[str, bool]]:
    """Each alert that the rule tests ask for, and whether it has to fire there."""
    for test in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]:
        for asked in test["promql_expr_test"]:
            for alert in re.findall(r'alertname="(\w+)"', asked["expr"]):
                yield alert, bool(asked.get("exp_samples"))


@pytest.mark.parametrize("alert", ALERTS)
def test_it_is_seen_to_fire_by_the_rule_tests(alert: str) -> None:
    assert (alert, True) in set(expectations())


def test_on_a_healthy_site_the_rule_tests_expect_none() -> None:
    first = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"][0]
    assert [{"expr": "ALERTS", "eval_time": "29m", "exp_samples": []}] == first["promql_expr_test"]
    fed = " ".join(series["series"] for series in first["input_series"])
    asked = {name for rule in rules() for name in _NAME.findall(rule["expr"])}
    assert set() == {name for name in asked if name not in fed} - {
        "nodewarden_outbox_dropped_total"  # it begins with its first loss
    }
