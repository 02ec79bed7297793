"""docs/inputs.md is what the parsers' tables say, and their examples are read as they claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors import slurm, slurm_logs
from collectors.kafka_exports import FORMS, form_of
from collectors.kinds import KINDS
from collectors.prometheus_api import EXAMPLE, is_answer
from collectors.slurm_objects import OBJECTS
from nodewarden.inputs_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """Else: python -m nodewarden.inputs_page > docs/inputs.md"""
    assert (ROOT / "docs" / "inputs.md").read_text("utf-8") == page()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_table_of_forms(kind: str) -> None:
    section = page().split(f"## `nodewarden parse {kind}`\n")[1].split("\n## ")[0]
    assert 3 < section.count("\n| ")


@pytest.mark.parametrize("form", slurm.FORMS, ids=lambda form: form.name)
def test_the_example_of_a_listing_begins_it(form: slurm.Form) -> None:
    assert next(row for row in slurm.FORMS if row.begins(form.example)) is form


@pytest.mark.parametrize("form", slurm_logs.LINE_FORMS, ids=lambda form: form.name)
def test_the_example_of_a_line_is_one(form: slurm_logs.LineForm) -> None:
    (said,) = slurm.read_slurm("x", [form.example.encode()])
    assert said["type"] == "rejected" or said["form"] == form.name


def test_every_type_of_object_that_is_printed_is_described() -> None:
    described = {name for types, _, _ in OBJECTS for name in types.split(", ")}
    folder = ROOT / "tests" / "data" / "scheduler"
    printed = {
        one["type"]
        for file in folder.iterdir()
        for one in slurm.read_slurm(file.name, [file.read_bytes()])
    }
    assert printed <= described


def test_the_examples_of_exports_are_recognised() -> None:
    for form in FORMS:
        example = form.example.replace(",...", "").replace("{...}", "{}")
        assert form_of(example.encode()) is form
    assert is_answer(EXAMPLE.encode())
