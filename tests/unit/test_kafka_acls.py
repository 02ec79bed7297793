"""deploy/kafka/acls.sh gives what its table says; the page shows the same; it names ours only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from streams.live.app import GROUP
from telemetry.broker_words import ACLS
from telemetry.settings import ActSettings
from telemetry.topics import TOPICS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "kafka" / "acls.sh"


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=30.0,
        env={**os.environ, **environ},
    )  # fmt: skip


def rows() -> list[list[str]]:
    return [line.split("\t") for line in run("list").stdout.splitlines()]


def test_only_topics_and_the_group_that_exist_are_named() -> None:
    for _, _, kind, names in rows():
        known = {
            "topic": {topic.short_name for topic in TOPICS},
            "group": {GROUP, ActSettings().transactional_id},
            "transactional-id": {ActSettings().transactional_id},
            "prefix": {"nodewarden."},
        }
        assert set(names.split()) <= known[kind], (kind, names)


def test_the_page_has_the_table() -> None:
    shown = [
        [cell.strip().strip("`") for cell in line.split("|")[1:5]]
        for line in (ROOT / ACLS).read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    assert rows() == shown


def test_apply_hands_each_rule_to_kafka_acls(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tool = tmp_path / "kafka-acls"
    tool.write_text('#!/bin/bash\necho "$*" >>"$LOG"\n')
    tool.chmod(0o755)

    done = run("apply", tool, "--bootstrap-server", "k:1", LOG=str(log), USERS_PREFIX="nw.")

    assert (0, "") == (done.returncode, done.stderr)
    said = log.read_text().splitlines()
    assert len(rows()) == len(said)
    assert (
        "--bootstrap-server k:1 --add --force --allow-principal User:nw.stream "
        "--operation Read --group nodewarden-stream"
    ) in said
    assert (
        "--bootstrap-server k:1 --add --force --allow-principal User:nw.agent --operation Write "
        "--topic nodewarden.telemetry --topic nodewarden.inventory --topic nodewarden.rejected"
    ) in said


def test_a_tool_that_fails_is_one_line(tmp_path: Path) -> None:
    done = run("apply", "false")
    assert (1, "acls.sh: the rights of nodewarden-operator could not be changed\n") == (
        done.returncode, done.stderr,
    )  # fmt: skip
    assert 2 == run("apply").returncode == run().returncode
