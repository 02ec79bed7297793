"""The worker's process: it starts, folds, says where it stands, and ends in good order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.live import LiveWorker, nodewarden

pytestmark = pytest.mark.kafka
CAPTURE = Path(__file__).parents[1] / "data" / "capture-xid79"


def test_an_import_is_folded_and_told_and_sigterm_ends_the_worker_with_0(
    clean_topics: Broker, tmp_path: Path
) -> None:
    with LiveWorker(clean_topics, tmp_path) as worker:
        nodewarden("import", CAPTURE, "--kafka", "--broker", clean_topics.address)
        found = worker.wait_caught_up()
        assert found["records_total", "history"] > 0
        assert found["rejected_total", "history"] == 0
        assert worker.stop() == 0
    assert "isolate" in nodewarden("incidents", "--json", "--broker", clean_topics.address)
