"""`deploy/local/slurm.sh` and `kube.sh` where they cannot run: one line, a status of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "deploy" / "local"


def run(script: str, path: Path, *arguments: str) -> tuple[int, str]:
    """Its exit status and standard error, on a machine with hardly more than bash."""
    for tool in ("dirname", "mkdir", "cat", "id"):
        place = path / tool
        if not place.exists():
            place.symlink_to(
                f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}"
            )
    done = subprocess.run(
        ["/bin/bash", str(SCRIPTS / script), *arguments],
        env={"PATH": str(path), "KUBE_BIN": str(path / "bin"), "HOME": str(path)},
        capture_output=True, text=True, check=False, timeout=30.0,
    )  # fmt: skip
    assert "" == done.stdout
    return done.returncode, done.stderr


@pytest.mark.parametrize("script", ["slurm.sh", "kube.sh"])
@pytest.mark.parametrize("arguments", [(), ("start",), ("dance", "DIR")])
def test_a_usage_error_says_the_usage(
    script: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    given = [str(tmp_path / "there") if word == "DIR" else word for word in arguments]
    status, said = run(script, tmp_path, *given)

    assert 2 == status
    assert said.startswith(f"{script}: usage: {script} install | start DIR [")


def test_a_missing_program_is_one_line(tmp_path: Path) -> None:
    status, said = run("kube.sh", tmp_path, "start", str(tmp_path / "there"))
    assert (3, "kube.sh: etcd or kube-apiserver is missing; run: kube.sh install\n") == (
        status, said,
    )  # fmt: skip
    status, said = run("kube.sh", tmp_path, "install")
    assert (3, 1) == (status, said.count("\n"))
