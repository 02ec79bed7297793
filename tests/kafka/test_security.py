"""TLS, SASL/SCRAM and ACLs: every service with the least rights, and one line where one lacks."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.broker.consumer import KafkaLogReader
from collectors.broker.link import KafkaLink
from collectors.link import Message
from nodewarden.clock import SystemClock
from telemetry.errors import SourceUnavailable
from telemetry.topics import INCIDENTS, TELEMETRY
from tests.kafka.least_rights import check_all_work
from tests.kafka.live import LiveWorker
from tests.kafka.refused import COMMANDS, WRITERS, command_line, last_words
from tests.kafka.secured import PREFIX, Secured, secured_broker
from tests.kafka.service import Service, nodewarden

pytestmark = pytest.mark.kafka

COMMAND_MAX_S = 60.0
RETRY_S = 0.05
FAULT = "xid79@2+300"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured"), "passwords") as found:
        yield found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive, and who runs where."""
    directory = tmp_path_factory.mktemp("inputs")
    nodewarden(
        "simulate", "--nodes", "8", "--minutes", "12", "--fault", FAULT,
        "--out", directory / "archive", "--jobs", directory / "jobs.json",
    )  # fmt: skip
    return directory


def test_every_service_works_as_its_own_user_with_the_least_rights(
    secured: Secured, tmp_path: Path
) -> None:
    check_all_work(secured, tmp_path)


def test_an_agent_sends_with_its_own_rights(secured: Secured) -> None:
    link = KafkaLink(secured.settings("agent"), SystemClock())
    try:
        message = Message(TELEMETRY, b"{}", b"main", 0)
        end_s = time.monotonic() + COMMAND_MAX_S
        while not link.offer(message):
            assert time.monotonic() < end_s, link.last_fault
            time.sleep(RETRY_S)
        while not (done := link.settled()):
            assert time.monotonic() < end_s, link.last_fault
            time.sleep(RETRY_S)
    finally:
        link.close()
    assert [None] == [settled.fault for settled in done]


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_wrong_password_is_one_line(
    secured: Secured, inputs: Path, tmp_path: Path, number: int
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong-password\n")
    password.chmod(0o600)
    config = secured.config(tmp_path, "operator", password_file=str(password))

    said = last_words(config, *command_line(number, inputs, tmp_path))

    assert said == (
        f"nodewarden: {secured.broker.address}: the broker does not accept the login of "
        f"'{PREFIX}operator'; check kafka.security.username and kafka.security.password_file"
    )


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_missing_right_is_one_line(
    secured: Secured, inputs: Path, tmp_path: Path, number: int
) -> None:
    """The agent's user may write the telemetry, and read nothing."""
    user = "reader" if COMMANDS[number][0] in WRITERS else "agent"
    config = secured.config(tmp_path, user)

    said = last_words(config, *command_line(number, inputs, tmp_path))

    assert said.startswith(f"nodewarden: the broker gives '{PREFIX}{user}' no right to ")
    assert said.endswith("; see deploy/kafka/acls.md")


def test_act_may_be_of_no_other_group_and_use_no_other_transactional_id(
    secured: Secured, tmp_path: Path
) -> None:
    config = secured.config(tmp_path, "act")
    config.write_text(f'{config.read_text()}[act]\ntransactional_id = "other"\n')
    line = f"nodewarden: the broker gives '{PREFIX}act' no right to {{}}; see deploy/kafka/acls.md"
    assert line.format("consumer group other") == last_words(config, "act")

    secured.give([("act", "Read", "group", "other")])
    assert line.format("transactional id other") == last_words(config, "act")


@pytest.mark.parametrize("command", [("topics", "check"), ("stream",)])
def test_an_untrusted_certificate_and_another_protocol_are_one_line(
    secured: Secured, tmp_path: Path, command: tuple[str, ...]
) -> None:
    other = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(other)],
        check=True, capture_output=True,
    )  # fmt: skip
    config = secured.config(tmp_path, "operator", ca_file=str(other))
    said = last_words(config, *command)
    assert f"{secured.broker.address}: its certificate is not trusted: " in said
    assert said.endswith("; check kafka.security.ca_file")

    config = secured.config(tmp_path, "operator", protocol="ssl", username="", password_file="")
    assert "the broker wants a login (scram-sha-512, scram-sha-256)" in last_words(config, *command)

    config = secured.config(tmp_path, "operator", mechanism="plain")
    assert "kafka.security.mechanism: the broker takes scram" in last_words(config, *command)

    plain = {"protocol": "plaintext", "username": "", "password_file": "", "ca_file": ""}
    config = secured.config(tmp_path, "operator", **plain)
    text = config.read_text().replace("request_timeout_s = 20.0", "request_timeout_s = 2.0")
    config.write_text(text)
    assert "set kafka.security.protocol to ssl" in last_words(config, *command)


def test_an_agent_with_a_wrong_password_says_so_and_keeps_its_records(
    secured: Secured, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong-password\n")
    password.chmod(0o600)
    tables = {
        "kafka": secured.kafka("agent", password_file=str(password)),
        "collect": {
            "state_dir": str(tmp_path / "state"), "metrics_address": "", "kmsg": "",
            "journalctl": "", "exporters": [], "step_socket": "",
        },
    }  # fmt: skip
    agent = Service(
        tmp_path, "agent", ("-m", "nodewarden", "collect"), tables, 0, prefix="", label=""
    )
    with agent:
        end_s = time.monotonic() + COMMAND_MAX_S
        while not (said := [line for line in agent.lines() if "does not accept" in line]):
            assert time.monotonic() < end_s, agent.lines()
            time.sleep(RETRY_S)
        assert agent.status is None
    assert 1 == len(said)
    assert said[0].endswith("kafka.security.password_file; records wait on disk")


def test_a_right_that_lacks_while_it_works_ends_the_worker_with_one_line(
    secured: Secured, inputs: Path, tmp_path: Path
) -> None:
    """A worker that may do all but tell its findings."""
    secured.give([
        ("act", "Read,Describe", "topic", "telemetry inventory findings incidents state rejected"),
        ("act", "Write", "topic", "telemetry incidents state rejected"),
        ("act", "Read", "group", "nodewarden-stream"),
    ])  # fmt: skip
    nodewarden(
        "import", inputs / "archive", "--kafka", "--config", secured.config(tmp_path, "history")
    )
    worker = LiveWorker(secured.broker, tmp_path, settings={"kafka": secured.kafka("act")})
    worker.start()
    assert 3 == worker.wait()
    assert worker.lines()[-1] == (
        f"nodewarden: the broker gives '{PREFIX}act' no right to topic nodewarden.findings; "
        "see deploy/kafka/acls.md"
    )
    assert not [line for line in worker.lines() if "Traceback" in line]


def test_a_reader_is_told_of_a_topic_that_is_hidden_from_it(secured: Secured) -> None:
    """One that is not there looks the same to who may not see it."""
    reader = KafkaLogReader(secured.settings("history"), SystemClock())
    try:
        assert [0, 1] == list(reader.partitions(TELEMETRY))
        with pytest.raises(
            SourceUnavailable, match=r"no right to topic nodewarden\.incidents; see"
        ):
            reader.partitions(INCIDENTS)
    finally:
        reader.close()


def test_a_history_is_told_with_the_rights_of_its_user(
    secured: Secured, inputs: Path, tmp_path: Path
) -> None:
    config = secured.config(tmp_path, "history")
    count = int(nodewarden("import", inputs / "archive", "--kafka", "--config", config).split()[0])
    stream = {"kafka": secured.kafka("stream")}
    with LiveWorker(secured.broker, tmp_path, settings=stream) as worker:
        worker.wait_caught_up(count)
    found = nodewarden("incidents", "--json", "--config", secured.config(tmp_path, "reader"))
    assert json.loads(found)["incidents"]
