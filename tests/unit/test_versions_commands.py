"""`nodewarden update`, `rollback` and `versions`, through the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nodewarden.cli import run
from tests.unit.test_act_api import TOKEN, Served


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as one:
        yield one


class Line:
    """The command line against that service: exit status, and what was printed."""

    def __init__(self, served: Served, directory: Path, read: pytest.CaptureFixture[str]) -> None:
        self._file = directory / "nodewarden.toml"
        self._file.write_text(f'[act]\nurl = "{served.settings.url}"\n', "utf-8")
        self._read = read

    def __call__(self, *words: str) -> tuple[int, str]:
        self._read.readouterr()
        environ = {"NODEWARDEN_ACT__TOKEN": TOKEN, "NODEWARDEN_CONFIG": str(self._file)}
        status = run(list(words), environ)
        said = self._read.readouterr()
        return status, said.out + said.err


@pytest.fixture
def line(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(served, tmp_path, capsys)


def test_what_runs_and_what_is_to_run_is_shown(line: Line) -> None:
    assert (0, "job 4711 runs what nobody told\n") == line("versions", "4711")
    assert 0 == line("update", "4711", "--code", "v1", "--running")[0]
    status, said = line("update", "4711", "--code", "v2", "--config", "c1", "--note", "lower lr")
    assert 0 == status
    assert "waiting: it joins the next restart of the job" in said
    status, said = line("versions", "4711")
    assert ["job 4711 runs code v1", "its next restart runs code v2, config c1"] \
        == said.splitlines()[:2]  # fmt: skip
    assert "waiting   code v2, config c1  by otto (lower lr)" in said
    _, said = line("versions", "4711", "--json")
    found = msgspec.json.decode(said)
    assert ({"code": "v1"}, {"code": "v2", "config": "c1"}) == (found["running"], found["next"])


def test_what_somebody_noted_moves_no_cursor_of_who_looks(line: Line) -> None:
    line("update", "4711", "--code", "v2", "--note", "\x1b[2Jgone\nall is well")
    _, said = line("versions", "4711")
    assert "by otto ( [2Jgone all is well)" in said


def test_what_is_wrong_is_one_line_and_changes_nothing(line: Line) -> None:
    assert 2 == line("update", "4711")[0]
    assert 2 == line("update", "4711", "--code", "v1", "--urgent", "--running")[0]
    status, said = line("update", "4711", "--code", "a b")
    assert (2, True) == (status, "'a b' names no version" in said)
    status, said = line("rollback", "4711")
    assert (2, "nodewarden: no update of job 4711 ever ran: there is nothing to go back to\n") \
        == (status, said)  # fmt: skip
    assert (0, "job 4711 runs what nobody told\n") == line("versions", "4711")


def test_a_viewer_looks_and_does_not_update(served: Served) -> None:
    assert 200 == served.asked("GET", "/v1/versions/7", None, "v" * 32)[0]
    body = b'{"target": "7", "versions": {"code": "v2"}}'
    assert 403 == served.asked("POST", "/v1/update", body, "v" * 32)[0]
    assert 403 == served.asked("POST", "/v1/rollback", b'{"target": "7"}', "v" * 32)[0]
    assert 200 == served.asked("POST", "/v1/update", body)[0]


@pytest.mark.parametrize(
    "body",
    [
        b'{"target": "7", "versions": {"code": 1}}', b'{"target": "7", "versions": ["v2"]}',
        b'{"target": "7", "versions": {"a":"1","b":"2","c":"3","d":"4","e":"5"}}',
        b'{"target": "7", "versions": {"code": "v2"}, "urgent": "yes"}', b'{"versions": {}}',
    ],
)  # fmt: skip
def test_a_body_that_is_none_is_400(served: Served, body: bytes) -> None:
    assert 400 == served.asked("POST", "/v1/update", body)[0]
