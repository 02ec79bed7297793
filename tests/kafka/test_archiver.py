"""The archiver on a real broker: kill -9 of it and of the broker, SIGTERM, what the files hold."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition

from collectors.broker.publisher import KafkaPublisher
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.archive import Torn, read_archive
from telemetry.settings import KafkaSettings
from telemetry.topics import FINDINGS, INVENTORY, TELEMETRY, TOPICS
from tests.dying_archiver import POINTS
from tests.kafka.broker import Broker, free_port
from tests.kafka.conftest import SHARDS
from tests.kafka.reading import read_all

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
WAIT_MAX_S = 90.0
STOP_MAX_S = 30.0  # 5 s, and a machine that is busy with something else
CHOSEN = {
    "NODEWARDEN_ARCHIVE__METRICS_ADDRESS": "",
    "NODEWARDEN_ARCHIVE__SYNC_S": "0.2",
    "NODEWARDEN_ARCHIVE__ROLL_BYTES": "20000",
    "NODEWARDEN_ARCHIVE__FLUSH_BYTES": "4000",
    "NODEWARDEN_KAFKA__REQUEST_TIMEOUT_S": "10",
}
PLACES = [
    (topic.name, number) for topic in TOPICS for number in range(len(SHARDS) * topic.by_shard or 1)
]


def publish(broker: Broker, records: int, first: int = 0) -> None:
    """Records of three partitions of three topics; some are no JSON, some are tombstones."""
    publisher = KafkaPublisher(KafkaSettings(brokers=(broker.address,)), SystemClock())
    for n in range(first, first + records):
        value = json.dumps({"n": n, "pad": "x" * (n % 97)}).encode()
        publisher.publish(TELEMETRY, value, key=b"main", partition=0, headers=[("kind", b"beat")])
        publisher.publish(FINDINGS, value if n % 5 else b"\xff\n", key=b"history", partition=1)
        publisher.publish(INVENTORY, value if n % 3 else None, key=b"job/%d" % n, partition=0)
    publisher.flush()
    publisher.close()


@contextmanager
def archiver(broker: Broker, out: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The real command as a process; killed in the end where it still runs."""
    environ = {**os.environ, **CHOSEN, **more}
    program = [sys.executable, "-m", "nodewarden", "archive", "--out", out]
    process = subprocess.Popen([*program, "--broker", broker.address], cwd=ROOT, env=environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def archived(out: Path) -> int:
    """How many records stand in whole frames on the disk."""
    if not out.exists():
        return 0
    return sum(not isinstance(line, Torn) for place in PLACES for line in read_archive(out, *place))


def wait_for(out: Path, records: int) -> None:
    end_s = time.monotonic() + WAIT_MAX_S
    while archived(out) < records:
        assert time.monotonic() < end_s, f"{archived(out)} of {records} records archived"
        time.sleep(0.1)


def assert_equals_the_log(out: Path, broker: Broker, places: Sequence[tuple[str, int]]) -> None:
    for place in places:
        assert list(read_archive(out, *place)) == read_all(broker, *place)


def test_the_archive_equals_the_log_and_sigterm_ends_it(
    clean_topics: Broker, tmp_path: Path
) -> None:
    publish(clean_topics, 500)
    with archiver(clean_topics, str(tmp_path)) as process:
        wait_for(tmp_path, 1_500)
        process.terminate()
        assert process.wait(STOP_MAX_S) == 0
    assert_equals_the_log(tmp_path, clean_topics, PLACES)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point_the_archive_equals_the_log(
    point: str, clean_topics: Broker, tmp_path: Path
) -> None:
    publish(clean_topics, 150)
    deaths = 0
    while True:
        program = [sys.executable, "-m", "tests.dying_archiver", str(tmp_path), point]
        program += [str(2 + 9 * deaths), clean_topics.address]
        status = subprocess.run(program, cwd=ROOT, timeout=WAIT_MAX_S, check=False).returncode
        if status == 0:
            break
        assert status == -signal.SIGKILL
        deaths += 1
        publish(clean_topics, 20, first=1_000 * deaths)
    assert deaths >= 2
    assert_equals_the_log(tmp_path, clean_topics, PLACES)


@pytest.mark.slow
def test_kill_9_of_archiver_and_broker_at_any_moment(own_kafka: Broker, tmp_path: Path) -> None:
    seed = 20261129
    print(f"seed {seed}")
    chance = random.Random(seed)
    for turn in range(6):
        publish(own_kafka, 300, first=1_000 * turn)
        with archiver(own_kafka, str(tmp_path)) as process:
            time.sleep(chance.uniform(0.8, 2.5))
            if turn in (1, 3):
                own_kafka.kill()
                time.sleep(0.5)
                own_kafka.start()
                time.sleep(1.0)
            process.kill()
    publish(own_kafka, 300, first=6_000)  # so that the last one has to have started before its end
    with archiver(own_kafka, str(tmp_path)) as process:
        wait_for(tmp_path, 7 * 900)
        process.terminate()
        assert process.wait(STOP_MAX_S) == 0
    assert_equals_the_log(tmp_path, own_kafka, PLACES)


def test_what_the_broker_deleted_before_it_was_read_is_a_gap_and_said(
    clean_topics: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """While the archiver is away, and before its eyes."""
    publish(clean_topics, 100)
    with archiver(clean_topics, str(tmp_path)) as process:
        wait_for(tmp_path, 300)
        process.terminate()
        assert process.wait(STOP_MAX_S) == 0
    publish(clean_topics, 100)
    delete_before(clean_topics, TELEMETRY, 150)
    with archiver(clean_topics, str(tmp_path)) as process:
        wait_for(tmp_path, 550)
        process.send_signal(signal.SIGSTOP)
        publish(clean_topics, 100)
        delete_before(clean_topics, TELEMETRY, 260)
        process.send_signal(signal.SIGCONT)
        wait_for(tmp_path, 790)
        process.terminate()
        assert process.wait(STOP_MAX_S) == 0
    found = [line.offset for line in read_archive(tmp_path) if not isinstance(line, Torn)]
    assert found[:101] == [*range(100), 150]
    assert found[-1] == 299
    assert len(found) == len(set(found))
    said = capfd.readouterr().err
    assert "gap topic=nodewarden.telemetry partition=0 first=100 until=150" in said
    missing = sorted(set(range(300)) - set(found))
    later = missing[50:]  # a fetch that was under way may have saved the first ones
    assert missing[:50] == list(range(100, 150))
    assert later == list(range(260 - len(later), 260))
    assert said.count("these records are in no file") == 2


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """What retention does, now."""
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    client.delete_records({TopicPartition(topic, 0): offset})
    client.close()


def test_without_a_broker_it_ends_at_sigterm_without_waiting_for_an_answer(
    own_kafka: Broker, tmp_path: Path
) -> None:
    publish(own_kafka, 50)
    patient = {"NODEWARDEN_KAFKA__REQUEST_TIMEOUT_S": str(4.0 * STOP_MAX_S)}
    with archiver(own_kafka, str(tmp_path), **patient) as process:
        wait_for(tmp_path, 150)
        own_kafka.kill()
        time.sleep(7.0)  # it asks for offsets every 5 s, and waits for an answer
        process.terminate()
        assert process.wait(STOP_MAX_S) == 0


def test_a_broker_that_is_not_there_at_the_start_is_one_line_and_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {**CHOSEN, "NODEWARDEN_KAFKA__REQUEST_TIMEOUT_S": "1"}
    nowhere = f"127.0.0.1:{free_port()}"
    status = run(["archive", "--out", str(tmp_path), "--broker", nowhere], environ)
    assert status == 3
    assert nowhere in capsys.readouterr().err
