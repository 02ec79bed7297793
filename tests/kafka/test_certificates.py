"""Clients that prove themselves by certificates: least rights, and one line where one lacks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.least_rights import check_all_work
from tests.kafka.refused import last_words
from tests.kafka.secured import PREFIX, Secured, secured_broker

pytestmark = pytest.mark.kafka
# By kafka-python, by aiokafka, and by kafka-python in transactions.
CLIENTS: list[tuple[str, ...]] = [("topics", "check"), ("stream",), ("act",)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured"), "certificates") as found:
        yield found


def test_every_service_works_by_its_own_certificate_with_the_least_rights(
    secured: Secured, tmp_path: Path
) -> None:
    check_all_work(secured, tmp_path)


@pytest.mark.parametrize("command", CLIENTS)
def test_a_missing_right_is_one_line_that_names_the_certificate(
    secured: Secured, tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = last_words(secured.config(tmp_path, "agent"), *command)

    owner = f"the owner of {secured.security('agent')['certificate_file']}"
    assert said.startswith(f"nodewarden: the broker gives {owner} no right to ")
    assert said.endswith("; see deploy/kafka/acls.md")


@pytest.mark.parametrize("command", CLIENTS)
def test_no_certificate_and_one_of_another_authority_are_one_line(
    secured: Secured, tmp_path: Path, command: tuple[str, ...]
) -> None:
    refused = f"nodewarden: {secured.broker.address}: the broker does not take our certificate ("
    config = secured.config(tmp_path, "operator", certificate_file="", key_file="")
    said = last_words(config, *command)
    assert said.startswith(refused), said
    assert said.endswith("; check kafka.security.certificate_file")

    other = {"certificate_file": tmp_path / "other.pem", "key_file": tmp_path / "other.key"}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
         f"/CN={PREFIX}operator", "-keyout", str(other["key_file"]),
         "-out", str(other["certificate_file"])],
        check=True, capture_output=True,
    )  # fmt: skip
    files = {name: str(file) for name, file in other.items()}
    said = last_words(secured.config(tmp_path, "operator", **files), *command)
    assert said.startswith(refused), said
