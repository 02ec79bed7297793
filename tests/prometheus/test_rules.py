"""The alert rules under promtool: they parse, and fire and stay silent as their tests say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.prometheus

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"


@pytest.mark.parametrize(
    ("verb", "file"),
    [("check", "nodewarden.rules.yml"), ("test", "nodewarden.rules.test.yml")],
)
def test_promtool_takes_them(verb: str, file: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI needs promtool (Debian: prometheus)")
        pytest.skip("promtool is needed, which is not installed (Debian: prometheus)")
    done = subprocess.run(
        [promtool, verb, "rules", file], cwd=RULES, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60.0, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
