"""Creates the topics, and says where those that exist are not as they should be."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings
from telemetry.topics import STATE, TELEMETRY, TOPICS, Topic

PAUSE_S = 0.05
BATCH_ROOM_BYTES = 65_536  # what Kafka puts around a record: batch header, key, headers
_LARGE = (TELEMETRY, STATE)  # topics whose records may be as large as the settings allow
_LISTS = frozenset({"cleanup.policy"})  # whose order means nothing
_BOUNDS = frozenset({"max.message.bytes"})  # more is as good


class Admin:
    """The topics of one cluster of brokers. Raises SourceUnavailable where none answers."""

    def __init__(self, settings: KafkaSettings, shards: Sequence[str]) -> None:
        self._settings = settings
        self._shards = tuple(shards)
        timeout_ms = self._timeout_ms = int(settings.request_timeout_s * 1000)
        try:
            self._client = KafkaAdminClient(
                bootstrap_servers=list(settings.brokers),
                client_id="nodewarden-topics",
                bootstrap_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
            )
        except (kafka.errors.KafkaError, ValueError) as error:
            raise self._unavailable(error) from error

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Leave."""
        self._client.close()

    def create(self) -> list[str]:
        """Make the topics that are missing and return their names; others stay as they are."""
        there = self._partitions()
        missing = [topic for topic in TOPICS if topic.name not in there]
        wanted = {
            topic.name: {
                "num_partitions": partitions_of(topic, self._shards),
                "replication_factor": self._settings.replication,
                "configs": config_of(topic, self._settings),
            }
            for topic in missing
        }
        if wanted:
            self._create(wanted)
            self._asked("wait_for_topics", sorted(wanted), timeout_ms=self._timeout_ms)
        return sorted(wanted)

    def check(self) -> list[str]:
        """One line for each thing that is not as it should be, with its remedy; none when fine."""
        there = self._partitions()
        present = [topic for topic in TOPICS if topic.name in there]
        lines = [
            f"{topic.name}: missing; run `nodewarden topics create`"
            for topic in TOPICS
            if topic.name not in there
        ]
        configs = self._configs([topic.name for topic in present])
        for topic in present:
            lines += self._partition_faults(topic, there[topic.name])
            lines += _config_faults(topic, configs[topic.name], self._settings)
        return lines

    def delete(self, names: Sequence[str]) -> None:
        """Delete those of the topics that exist; returns when they are gone."""
        there = self._partitions()
        found = [name for name in names if name in there]
        if not found:
            return
        self._asked("delete_topics", found)
        end_s = time.monotonic() + self._settings.request_timeout_s
        while not self._partitions().keys().isdisjoint(found):
            if time.monotonic() >= end_s:
                raise SourceUnavailable(f"{', '.join(found)}: deleted and still there")
            time.sleep(PAUSE_S)

    def _create(self, wanted: dict[str, Any]) -> None:
        try:
            self._client.create_topics(wanted)
        except kafka.errors.TopicAlreadyExistsError:
            return  # somebody else was faster; `check` says where it differs
        except kafka.errors.KafkaError as error:
            raise self._unavailable(error) from error

    def _partition_faults(self, topic: Topic, replicas: Sequence[int]) -> Iterator[str]:
        wanted = partitions_of(topic, self._shards)
        if len(replicas) < wanted:
            yield (
                f"{topic.name}: {len(replicas)} partitions instead of {wanted}; run "
                f"`kafka-topics.sh --alter --topic {topic.name} --partitions {wanted}`"
            )
        elif len(replicas) > wanted:
            yield (
                f"{topic.name}: {len(replicas)} partitions instead of {wanted}; name as many "
                f"shards in the settings, or delete the topic and run `nodewarden topics create`"
            )
        if min(replicas, default=0) < self._settings.replication:
            yield (
                f"{topic.name}: {min(replicas, default=0)} replicas instead of "
                f"{self._settings.replication}; run `kafka-reassign-partitions.sh`, or set "
                "kafka.replication to what is meant"
            )

    def _partitions(self) -> dict[str, list[int]]:
        """Our topics that exist -> the number of replicas of each partition."""
        ours = {topic.name for topic in TOPICS}
        listed = self._asked("list_topics")
        there = sorted(ours.intersection(listed))
        if not there:
            return {}
        return {
            found["name"]: [len(partition["replica_nodes"]) for partition in found["partitions"]]
            for found in self._asked("describe_topics", there)
        }

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        found = self._asked("describe_configs", wanted, config_filter="all")
        topics = found["topic"]
        return {
            name: {key: str(entry["value"]) for key, entry in topics[name].items()}
            for name in names
        }

    def _asked(self, what: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._client, what)(*arguments, **named)
        except kafka.errors.KafkaError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> SourceUnavailable:
        brokers = ", ".join(self._settings.brokers)
        if isinstance(error, kafka.errors.KafkaTimeoutError | kafka.errors.KafkaConnectionError):
            return SourceUnavailable(f"no broker answers at {brokers}; check it or give --broker")
        return SourceUnavailable(f"the broker at {brokers} refused: {error}")


def partitions_of(topic: Topic, shards: Sequence[str]) -> int:
    """How many partitions the topic has."""
    return len(shards) if topic.by_shard else 1


def config_of(topic: Topic, settings: KafkaSettings) -> dict[str, str]:
    """What the topic is created with: its own settings, and room for our largest records."""
    config = topic.config
    if topic.name in _LARGE:
        config["max.message.bytes"] = str(settings.record_max_bytes + BATCH_ROOM_BYTES)
    return config


def _config_faults(topic: Topic, found: dict[str, str], settings: KafkaSettings) -> Iterator[str]:
    for name, wanted in config_of(topic, settings).items():
        if not _as_good(name, found.get(name, ""), wanted):
            yield (
                f"{topic.name}: {name}={found.get(name, 'unset')} instead of {wanted}; run "
                f"`kafka-configs.sh --alter --topic {topic.name} --add-config {name}=[{wanted}]`"
            )


def _as_good(name: str, found: str, wanted: str) -> bool:
    if name in _LISTS:
        return set(found.split(",")) == set(wanted.split(","))
    if name in _BOUNDS and found.isdigit():
        return int(found) >= int(wanted)
    return found == wanted
