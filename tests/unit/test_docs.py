"""What the documents say exists does exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodewarden.cli import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]  # fmt: skip


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def commands_shown() -> Iterator[list[str]]:
    for block in re.findall(r"```\n(.*?)```", text_of("README.md"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("nodewarden "):
                yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("words", list(commands_shown()), ids=" ".join)
def test_the_commands_of_the_readme_exist_with_their_options(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_make_targets_of_the_documents_exist(document: str) -> None:
    assert set(re.findall(r"`make ([a-z-]+)", text_of(document))) <= targets()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_of_the_documents_lead_somewhere(document: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", text_of(document)):
        assert ((ROOT / document).parent / link).exists(), link


def test_the_files_and_modules_that_the_documents_name_exist() -> None:
    """Paths in backticks, and dotted names of ours down to the module."""
    for document in DOCUMENTS:
        for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.(?:py|tsv|toml))`", text_of(document)):
            assert (ROOT / name).exists(), (document, name)
        for package, module in re.findall(
            r"`(telemetry|detectors|collectors|streams|actions|evaluation|console|nodewarden)"
            r"\.([a-z_]+)",
            text_of(document),
        ):
            place = ROOT / package / module
            known = (
                place.with_suffix(".py").exists()
                or place.is_dir()
                or (package == "nodewarden" and module in TOPICS)
            )
            assert known, (document, package, module)


TOPICS = {"telemetry", "inventory", "findings", "incidents", "actions", "state", "rejected"}


def test_every_decision_has_a_choice_and_what_would_change_it() -> None:
    for path in (ROOT / "docs" / "decisions").glob("*.md"):
        assert re.fullmatch(r"[0-9]{4}-[a-z0-9-]+\.md", path.name)
        text = path.read_text(encoding="utf-8")
        for part in ("**Question.**", "**Choice.**", "**Why", "**What would change our mind.**"):
            assert part in text, (path.name, part)
