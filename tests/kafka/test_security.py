"""TLS, SASL/SCRAM and ACLs: every service with the least rights, and one line where one lacks."""

from __future__ import annotations

import json
import subprocess
import sys
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
from tests.kafka.conftest import SHARDS, started
from tests.kafka.live import LiveArchiver, LiveWorker
from tests.kafka.secured import PREFIX, Secured, rules
from tests.kafka.service import ROOT, Service, nodewarden

pytestmark = pytest.mark.kafka

COMMAND_MAX_S = 60.0
RETRY_S = 0.05
FAULT = "xid79@2+300"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """All topics, and the rights of deploy/kafka/acls.sh."""
    broker = started(tmp_path_factory.mktemp("secured"), secure=True)
    try:
        found = Secured(broker)
        found.give(rules())
        config = found.config(tmp_path_factory.mktemp("operator"), "operator")
        nodewarden("topics", "create", "--config", config)
        yield found
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small archive, and who runs where."""
    directory = tmp_path_factory.mktemp("inputs")
    nodewarden(
        "simulate", "--nodes", "8", "--minutes", "12", "--fault", FAULT,
        "--out", directory / "archive", "--jobs", directory / "jobs.json",
    )  # fmt: skip
    return directory


def last_words(config: Path, *arguments: str | Path) -> str:
    """What a command that ends with 3 said last; none of it is a traceback or a password."""
    done = subprocess.run(
        [sys.executable, "-m", "nodewarden", *map(str, arguments), "--config", str(config)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=COMMAND_MAX_S,
    )  # fmt: skip
    assert 3 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong-password" not in done.stdout + done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("nodewarden: ")]
    assert 1 == len(ours), done.stderr
    return ours[0]


def commands(inputs: Path, out: Path) -> list[tuple[str | Path, ...]]:
    """Of every client of Kafka one that ends by itself when it is refused."""
    return [
        ("topics", "check"),
        ("stream",),
        ("archive", "--out", out),
        ("inventory", "--once", "--from", inputs / "jobs.json"),
        ("import", inputs / "archive", "--kafka"),
        ("incidents",),
    ]


def test_every_service_runs_as_its_own_user_with_the_least_rights(
    secured: Secured, inputs: Path, tmp_path: Path
) -> None:
    assert "topics are fine\n" == nodewarden(
        "topics", "check", "--config", secured.config(tmp_path, "operator")
    )
    said = nodewarden(
        "import", inputs / "archive", "--kafka", "--config", secured.config(tmp_path, "history")
    )
    count = int(said.split()[0])
    nodewarden(
        "inventory", "--once", "--from", inputs / "jobs.json",
        "--config", secured.config(tmp_path, "inventory"),
    )  # fmt: skip
    stream = {"kafka": secured.kafka("stream")}
    archiver = LiveArchiver(secured.broker, tmp_path, tmp_path / "out")
    archiver.change_settings({"shards": SHARDS, "kafka": secured.kafka("archive")})
    with LiveWorker(secured.broker, tmp_path, settings=stream) as worker, archiver:
        worker.wait_caught_up(count)
        archiver.wait_taken(count)
    found = nodewarden("incidents", "--json", "--config", secured.config(tmp_path, "reader"))
    assert json.loads(found)["incidents"]


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


@pytest.mark.parametrize("number", range(6))
def test_a_wrong_password_is_one_line(
    secured: Secured, inputs: Path, tmp_path: Path, number: int
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong-password\n")
    password.chmod(0o600)
    config = secured.config(tmp_path, "operator", password_file=str(password))

    said = last_words(config, *commands(inputs, tmp_path / "out")[number])

    assert said == (
        f"nodewarden: {secured.broker.address}: the broker does not accept the login of "
        f"'{PREFIX}operator'; check kafka.security.username and kafka.security.password_file"
    )


@pytest.mark.parametrize("number", range(6))
def test_a_missing_right_is_one_line(
    secured: Secured, inputs: Path, tmp_path: Path, number: int
) -> None:
    """The agent's user may write the telemetry, and read nothing."""
    user = "reader" if number == 4 else "agent"
    config = secured.config(tmp_path, user)

    said = last_words(config, *commands(inputs, tmp_path / "out")[number])

    assert said.startswith(f"nodewarden: the broker gives '{PREFIX}{user}' no right to ")
    assert said.endswith("; see deploy/kafka/acls.md")


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
