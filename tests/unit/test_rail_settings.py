"""Settings of rails that would let pass what they read as if they held stop the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodewarden.rail_checks import wrong_rails
from nodewarden.settings_file import load
from telemetry.errors import SettingsError
from telemetry.settings import ActSettings


def acting(**changes: Any) -> ActSettings:
    return msgspec.convert(changes, ActSettings)


@pytest.mark.parametrize(
    ("settings", "key"),
    [(acting(rails={"mode_default": "auto", "mode": {"isolate_and_restrat": "observe"}}),
      "act.rails.mode"),
     (acting(keep_s=3_600.0), "act.keep_s"),
     (acting(rails={"undo_s": 1e6}), "act.keep_s"),
     (acting(rails={"job_nodes_per_hour": 5}), "act.rails.job_nodes_per_hour"),
     (acting(rails={"breaker_close_nodes": 8}), "act.rails.breaker_close_nodes"),
     (acting(rails={"protected": ["n[1"]}), "act.rails.protected"),
     (acting(rails={"maintenance": ["2026-01-02T00:00Z/2026-01-01T00:00Z n1"]}),
      "act.rails.maintenance"),
     (acting(rails={"maintenance": ["2026-01-01T00:00Z/2026-01-02T00:00Z n[1"]}),
      "act.rails.maintenance"),
     (acting(recovery={"modes": []}), "act.recovery.modes"),
     (acting(recovery={"modes": ["requeue", "requeue"]}), "act.recovery.modes")],
)  # fmt: skip
def test_what_would_hold_nothing_is_named(settings: ActSettings, key: str) -> None:
    assert key in [name for name, _ in wrong_rails(settings)]


def test_what_is_fine_is_fine() -> None:
    kinds = {"isolate_and_restart": "approve", "quarantine": "observe", "restart": "auto"}
    assert [] == list(wrong_rails(acting(rails={"mode": kinds})))


def test_a_mode_of_no_action_stops_the_start_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "nodewarden.toml"
    file.write_text('[act.rails]\nmode = { isolat = "observe" }\n', "utf-8")
    with pytest.raises(SettingsError, match=r"act\.rails\.mode: 'isolat' is none of") as caught:
        load(file, {})
    assert "\n" not in str(caught.value)
