"""The real Alertmanager's silences are maintenance windows until somebody takes them back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from collectors.inventory.silences import AlertmanagerSilences, windows_of
from nodewarden.clock import SystemClock
from telemetry.records import Maintenance
from telemetry.settings import SilencesSettings
from tests.prometheus.alertmanager import Alertmanager, AlertmanagerMissing, until

pytestmark = pytest.mark.prometheus
CLOCK = SystemClock()
NODES = ["n1", "n2", "n10"]
SETTINGS = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    try:
        server = Alertmanager(tmp_path / "alertmanager", SETTINGS)
    except AlertmanagerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs one: {missing}")
        pytest.skip(str(missing))
    yield server
    server.stop()


def matcher(name: str, value: str, regex: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "isRegex": regex, "isEqual": True}


def silence(server: Alertmanager, starts_in_s: float, *matchers: dict[str, Any]) -> str:
    """Its id."""
    since_s = CLOCK.time_s() + starts_in_s
    said = {
        "matchers": matchers, "createdBy": "otto", "comment": "new fans",
        "startsAt": datetime.fromtimestamp(since_s, UTC).isoformat(),
        "endsAt": datetime.fromtimestamp(since_s + 3_600.0, UTC).isoformat(),
    }  # fmt: skip
    request = Request(
        f"{server.url}/api/v2/silences", json.dumps(said).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urlopen(request, timeout=10) as answer:
        return str(json.loads(answer.read())["silenceID"])


def take_back(server: Alertmanager, name: str) -> None:
    with urlopen(Request(f"{server.url}/api/v2/silence/{name}", method="DELETE"), timeout=10):
        pass


def test_silences_of_nodes_are_windows_now_and_to_come_until_they_are_taken_back(
    alertmanager: Alertmanager,
) -> None:
    settings = SilencesSettings(url=alertmanager.url)
    source = AlertmanagerSilences(settings, CLOCK)

    def windows() -> list[Maintenance]:
        return windows_of(source.read(), dict.fromkeys(NODES, ()), "main", settings)

    assert [] == windows()
    now = silence(alertmanager, 0.5, matcher("instance", "n1(0)?:9400", regex=True))
    coming = silence(alertmanager, 7_200.0, matcher("node", "n2"), matcher("cluster", "main"))
    silence(alertmanager, 0.5, matcher("node", "n2"), matcher("alertname", "DCGMXid"))

    first, second = windows()
    assert (f"silence {now} by otto", ["n1", "n10"]) == (first.name, first.nodes)
    assert (f"silence {coming} by otto", ["n2"]) == (second.name, second.nodes)
    assert 3_600.0 == pytest.approx(first.until - first.since, abs=1.0)
    assert second.since - CLOCK.time_s() == pytest.approx(7_200.0, abs=60.0)

    take_back(alertmanager, now)
    take_back(alertmanager, coming)
    until(lambda: windows() == [])
