"""The wheel: what a user installs holds our packages with their data, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "actions", "collectors", "console", "detectors", "evaluation", "nodewarden", "streams",
    "telemetry",
}  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out),
         str(ROOT)],
        check=True,
    )  # fmt: skip
    [found] = out.glob("*.whl")
    return found


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def source_files() -> Iterator[str]:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix()


def test_the_wheel_holds_our_packages_and_neither_tests_nor_deploy(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    assert set(source_files()) <= names(wheel)
    assert "telemetry/xids.tsv" in names(wheel)


def test_the_wheel_installs_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [points] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "nodewarden = nodewarden.__main__:main" in archive.read(points).decode()


def test_the_catalogue_is_read_from_the_installed_package(wheel: Path, tmp_path: Path) -> None:
    """Outside the checkout, with the wheel's contents first on the path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", "explain", "xid", "79"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "isolate on one event: yes" in done.stdout
