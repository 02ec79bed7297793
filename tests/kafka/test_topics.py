"""`nodewarden topics create` and `check` against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.broker.admin import Admin, config_of, partitions_of
from nodewarden.cli import run
from telemetry.settings import KafkaSettings
from telemetry.topics import BY_NAME, INVENTORY, STATE, TELEMETRY, TOPICS
from tests.kafka.broker import Broker
from tests.kafka.conftest import SHARDS

pytestmark = pytest.mark.kafka


def asked(broker: Broker, *arguments: str) -> int:
    return run(["topics", *arguments, "--broker", broker.address], {})


def test_created_topics_are_what_check_wants(
    clean_topics: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == asked(clean_topics, "check")
    assert "topics are fine\n" == capsys.readouterr().out

    assert 0 == asked(clean_topics, "create")
    assert "all topics exist\n" == capsys.readouterr().out


def test_create_makes_what_is_missing_and_nothing_else(
    clean_topics: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(KafkaSettings(brokers=(clean_topics.address,)), SHARDS) as admin:
        admin.delete([STATE, INVENTORY])

    assert 2 == asked(clean_topics, "check")
    said = capsys.readouterr().out.splitlines()
    assert [f"{name}: missing; run `nodewarden topics create`" for name in (INVENTORY, STATE)] == (
        said
    )
    assert 0 == asked(clean_topics, "create")
    assert f"created: {INVENTORY}, {STATE}\n" == capsys.readouterr().out


def test_check_says_each_deviation_with_its_remedy(
    clean_topics: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "nodewarden.toml"
    config.write_text(
        'shards = ["main", "history", "pod7"]\n[kafka]\nrecord_max_bytes = 5_000_000\n'
    )

    assert 2 == asked(clean_topics, "check", "--config", str(config))

    said = capsys.readouterr().out.splitlines()
    by_shard = [topic.name for topic in TOPICS if topic.by_shard]
    assert {f"{name}: 2 partitions instead of 3" for name in by_shard} == {
        line.partition("; ")[0] for line in said if "partitions" in line.partition("; ")[0]
    }
    assert {
        f"{name}: max.message.bytes=1065536 instead of 5065536" for name in (TELEMETRY, STATE)
    } == {line.partition("; ")[0] for line in said if "max.message.bytes" in line}
    assert all("; run `" in line for line in said)


def test_a_topic_that_takes_the_producers_clock_is_a_deviation(clean_topics: Broker) -> None:
    with Admin(KafkaSettings(brokers=(clean_topics.address,)), SHARDS) as admin:
        admin.delete([INVENTORY])
        admin._client.create_topics({INVENTORY: {"num_partitions": 1, "replication_factor": 1}})

        said = [line.partition(" instead of ")[0] for line in admin.check()]

    assert f"{INVENTORY}: message.timestamp.type=CreateTime" in said


def test_without_a_broker_the_exit_status_is_3_and_one_line_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environ = {"NODEWARDEN_KAFKA__REQUEST_TIMEOUT_S": "1"}
    assert 3 == run(["topics", "check", "--broker", "127.0.0.1:1"], environ)

    said = capsys.readouterr()
    assert "" == said.out
    assert "nodewarden: no broker answers at 127.0.0.1:1; check it or give --broker\n" == said.err


@pytest.mark.parametrize("broker", ["nowhere", ":9092", "host:", "host:no", "host:99999"])
def test_an_address_that_is_none_is_refused(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(["topics", "check", "--broker", broker], {})
    assert "expected HOST:PORT" in capsys.readouterr().err


def test_only_topics_by_shard_have_a_partition_a_shard() -> None:
    assert 3 == partitions_of(BY_NAME[TELEMETRY], ("a", "b", "c"))
    assert 1 == partitions_of(BY_NAME[INVENTORY], ("a", "b", "c"))
    assert "LogAppendTime" == config_of(BY_NAME[STATE], KafkaSettings())["message.timestamp.type"]
