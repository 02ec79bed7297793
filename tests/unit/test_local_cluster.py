"""`deploy/local/cluster.sh`, beside a stand-in for the broker and for nodewarden."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from actions.access import Access, may
from tests.processes import runs

SCRIPT = Path(__file__).parents[2] / "deploy" / "local" / "cluster.sh"
NODEWARDEN = """#!/bin/bash
case "$1" in
topics) ;;
incidents) echo "one incident" ;;
simulate) while [ "$1" != --jobs ]; do shift; done; echo {} >"$2"; exec sleep 60 ;;
*) exec sleep 60 ;;
esac
"""


class Local:
    """One `cluster.sh` in a checkout of its own, started there or elsewhere."""

    def __init__(self, tmp_path: Path, place: str, *, elsewhere: bool = False) -> None:
        checkout = tmp_path / "with space"
        self._beside = checkout / "deploy" / "local"
        self._beside.mkdir(parents=True)
        self._cwd = tmp_path / "here" if elsewhere else checkout
        self._cwd.mkdir(exist_ok=True)
        shutil.copy(SCRIPT, self._beside / "cluster.sh")
        for name, text in (("kafka.sh", "#!/bin/sh\n"), ("nodewarden", NODEWARDEN)):
            (self._beside / name).write_text(text)
            (self._beside / name).chmod(0o755)
        self._environ = {
            **os.environ, "NODEWARDEN": str(self._beside / "nodewarden"), "PORT": "39092",
        }  # fmt: skip
        if place:
            self._environ["DIR"] = place
        self.place = self._cwd / (place or ".local")

    def run(self, verb: str) -> str:
        done = subprocess.run(
            [str(self._beside / "cluster.sh"), verb], cwd=self._cwd, env=self._environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def alive(self) -> list[int]:
        pids = [int(file.read_text("ascii")) for file in self.place.glob("*.pid")]
        return [pid for pid in pids if runs(pid)]

    def follow(self, said: str) -> None:
        """Do what it says ends it, from another directory."""
        (line,) = [one.partition("end:")[2] for one in said.splitlines() if one.startswith("end:")]
        environ = {name: value for name, value in self._environ.items() if name != "DIR"}
        subprocess.run(
            ["/bin/bash", "-c", line], cwd="/", env=environ, capture_output=True, timeout=60.0,
            check=True,
        )  # fmt: skip


@pytest.mark.parametrize(("place", "elsewhere"), [("else", False), ("two words", True), ("", True)])
def test_what_up_says_ends_it_ends_that_one(tmp_path: Path, place: str, elsewhere: bool) -> None:
    local = Local(tmp_path, place, elsewhere=elsewhere)
    try:
        said = local.run("up")
        assert "make down-local" not in said
        assert 6 == len(local.alive())
        local.follow(said)
        assert [] == local.alive()
    finally:
        local.run("down")


def test_the_usual_one_is_ended_by_make(tmp_path: Path) -> None:
    local = Local(tmp_path, "")
    try:
        assert "end:   make down-local\n" in local.run("up")
    finally:
        local.run("down")


def test_there_is_a_token_for_resume_that_its_owner_alone_may_read(tmp_path: Path) -> None:
    local = Local(tmp_path, "")
    local.place.mkdir()
    (local.place / "token").write_text("0" * 64)
    (local.place / "token").chmod(0o644)  # as somebody may have left it
    try:
        said = local.run("up")
    finally:
        local.run("down")
    act = tomllib.loads((local.place / "nodewarden.toml").read_text("utf-8"))["act"]
    assert act["address"].startswith("127.0.0.1:")
    access = Access(act["tokens"])
    roles = {}
    for name in ("token", "admin-token"):
        file = local.place / name
        assert 0o600 == file.stat().st_mode & 0o777
        text = file.read_text("ascii")
        assert 64 == len(text)
        assert hashlib.sha256(text.encode()).hexdigest() in str(act["tokens"])
        person = access.who(f"Bearer {text}")
        assert person is not None
        roles[name] = person.role
        assert may(person, "resume") == (name == "admin-token")
        assert may(person, "isolate")
    assert {"token": "operator", "admin-token": "admin"} == roles
    assert ".local/admin-token) " in said
    assert " resume " in said
