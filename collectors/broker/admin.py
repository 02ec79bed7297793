"""Creates the topics, and says where those that exist are not as they should be."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from collectors.broker.faults import fault_text
from collectors.broker.login import await_acceptance
from telemetry.broker_security import client_options
from telemetry.errors import SourceUnavailable
from telemetry.settings import KafkaSettings
from telemetry.topics import STATE, TELEMETRY, TOPICS, Topic

PAUSE_S = 0.05
BATCH_ROOM_BYTES = 65_536  # what Kafka puts around a record: batch header, key, headers
_LARGE = (TELEMETRY, STATE)  # topics whose records may be as large as the settings allow
_LISTS = frozenset({"cleanup.policy"})  # whose order means nothing
_NOT_TO_BE_SEEN = kafka.errors.TopicAuthorizationFailedError.errno
_UNKNOWN = kafka.errors.UnknownTopicOrPartitionError.errno
_BOUNDS = frozenset({"max.message.bytes"})  # more is as good


class Admin:
    """The topics of one cluster of brokers. Raises SourceUnavailable where none answers, or refuses
    us, and SettingsError for a file of `kafka.security`.
    """

    def __init__(self, settings: KafkaSettings, shards: Sequence[str]) -> None:
        self._settings = settings
        self._shards = tuple(shards)
        timeout_ms = self._timeout_ms = int(settings.request_timeout_s * 1000)
        await_acceptance(settings, settings.request_timeout_s)
        try:
            self._client = KafkaAdminClient(
                bootstrap_servers=list(settings.brokers),
                client_id="nodewarden-topics",
                bootstrap_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
                **client_options(settings),
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
        described = self._asked("describe_topics", [topic.name for topic in TOPICS])
        hidden = [one["name"] for one in described if one["error_code"] == _NOT_TO_BE_SEEN]
        if hidden:
            raise self._unavailable(kafka.errors.TopicAuthorizationFailedError(set(hidden)))
        return {
            found["name"]: [len(partition["replica_nodes"]) for partition in found["partitions"]]
            for found in described
            if found["error_code"] != _UNKNOWN
        }

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        found = self._asked("describe_configs", wanted, config_filter="all")
        topics = found["topic"]
        hidden = {name for name in names if not topics[name]}
        if hidden:  # kafka-python leaves out why
            raise self._unavailable(kafka.errors.TopicAuthorizationFailedError(hidden))
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
        return SourceUnavailable(fault_text(self._settings, error))


def partitions_of(topic: Topic, shards: Sequence[str]) -> int:
    """How many partitions the topic has."""
    return len(shards) if topic.by_shard else 1


def config_of(topic: Topic, settings: KafkaSettings) -> dict[str, str]:
    """What the topic is created with: its own settings, the site's, and room for large records."""
    config = topic.config
    config["min.insync.replicas"] = str(min_insync_of(settings))
    config["compression.type"] = settings.compression
    days = settings.retention_days.get(topic.short_name)
    if days is not None and topic.retention_ms is not None:
        config["retention.ms"] = str(round(days * 86_400_000))
    if topic.name in _LARGE:
        config["max.message.bytes"] = str(settings.record_max_bytes + BATCH_ROOM_BYTES)
    return config


def min_insync_of(settings: KafkaSettings) -> int:
    """So many replicas must have a record before it counts as kept."""
    return settings.min_insync_replicas or max(settings.replication - 1, 1)


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
