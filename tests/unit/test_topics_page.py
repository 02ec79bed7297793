"""docs/topics.md is what the table says; its telemetry estimate is what the simulator sends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evaluation.simulator import Simulation
from nodewarden.topics_page import KEYS, page
from telemetry.codec import encode
from telemetry.settings import KafkaSettings
from telemetry.topics import TELEMETRY_NODE_DAY_BYTES, TOPICS

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """Else: python -m nodewarden.topics_page > docs/topics.md"""
    assert (ROOT / "docs" / "topics.md").read_text("utf-8") == page()


def test_every_topic_has_a_row_in_both_tables() -> None:
    for topic in TOPICS:
        assert page().count(f"\n| `{topic.name}` |") == 2


def test_the_defaults_of_the_page_are_those_of_the_settings() -> None:
    for key, default, _ in KEYS:
        assert msgspec.json.decode(default) == msgspec.to_builtins(getattr(KafkaSettings(), key))


def test_the_estimate_of_telemetry_is_what_the_simulator_sends() -> None:
    nodes, minutes = 8, 10.0
    sent = sum(len(encode(record)) for _, record in Simulation(nodes, minutes=minutes).records())
    assert sent / nodes / minutes * 1440.0 == pytest.approx(TELEMETRY_NODE_DAY_BYTES, rel=0.25)
