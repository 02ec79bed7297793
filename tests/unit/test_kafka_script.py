"""`deploy/local/kafka.sh` where it cannot run: one line, and an exit status of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "local" / "kafka.sh"


def run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Its exit status and standard error, on a machine with nothing but bash."""
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), *arguments],
        env={"PATH": str(tmp_path), "KAFKA_JARS": str(tmp_path / "jars"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30.0,
    )
    assert "" == done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [("install",), ("start", "DIR")])
def test_what_is_missing_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    missing_java = run(tmp_path, *arguments)
    java = tmp_path / "java"
    java.write_text("#!/bin/bash\n")
    java.chmod(0o755)
    missing_maven = run(tmp_path, *arguments)

    said = "kafka.sh: java is missing; install a Java runtime, 17 or newer\n"
    assert (3, said) == missing_java
    assert (3, "kafka.sh: mvn is missing; install Apache Maven\n") == missing_maven


@pytest.mark.parametrize("arguments", [(), ("start",), ("dance", "DIR"), ("topics",)])
def test_a_usage_error_says_the_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, said = run(tmp_path, *arguments)

    assert 2 == status
    assert said.startswith(
        "kafka.sh: usage: kafka.sh install | start DIR [PORT] [--secure | --certificates] | "
    )


def test_without_a_broker_its_status_is_1(tmp_path: Path) -> None:
    assert (1, f"kafka.sh: no broker runs in {tmp_path}\n") == run(
        tmp_path, "status", str(tmp_path)
    )
