"""The topic table: the broker's clock everywhere, shards by position."""

from __future__ import annotations

from telemetry.topics import BY_NAME, TELEMETRY, TOPICS, partition_of


def test_the_topics_of_the_design_are_there() -> None:
    assert [topic.name.removeprefix("nodewarden.") for topic in TOPICS] == [
        "telemetry", "inventory", "findings", "incidents", "actions", "state", "rejected",
    ]  # fmt: skip


def test_the_brokers_clock_stamps_every_topic() -> None:
    assert {topic.config["message.timestamp.type"] for topic in TOPICS} == {"LogAppendTime"}


def test_compacted_topics_keep_their_state_for_ever() -> None:
    assert "retention.ms" not in BY_NAME["nodewarden.state"].config
    assert BY_NAME["nodewarden.state"].config["cleanup.policy"] == "compact"
    assert BY_NAME[TELEMETRY].config["retention.ms"] == str(3 * 86_400_000)


def test_a_shard_is_its_position() -> None:
    assert partition_of("main", ("main", "history")) == 0
    assert partition_of("history", ("main", "history")) == 1
    assert partition_of("pod7", ("main", "history")) is None
