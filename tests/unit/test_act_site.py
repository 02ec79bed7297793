"""What `act` is told of the site: maintenance, boots, and how old that is."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import msgspec
import pytest

from actions.ports import JobFacts
from nodewarden.act_inventory import InventoryTopic
from nodewarden.act_site import SiteReader
from telemetry.actions import Window
from telemetry.errors import SourceUnavailable
from telemetry.records import Gpu, Hardware, Job, JobNode, Maintenance, NodeInfo
from telemetry.settings import ActSettings, Configuration, SilencesSettings
from telemetry.testing import ManualClock, MemoryLog
from telemetry.topics import INVENTORY
from tests.unit.test_silences import silence

START_S = 1_796_005_000.0  # within what `silence` says


class Alertmanager(http.server.BaseHTTPRequestHandler):
    """Answers under a prefix, `down` with an error; and tells how old the listing is."""

    silences: Sequence[object] = ()
    down = False
    listed_at = START_S
    authorization = ""

    def do_GET(self) -> None:
        answers = {
            "/am/api/v2/silences": json.dumps(self.silences),
            "/metrics": f"nodewarden_inventory_source_timestamp_seconds {self.listed_at}\n",
        }
        known = self.path in answers and not (self.down and "silences" in self.path)
        if "silences" in self.path:
            type(self).authorization = self.headers.get("Authorization", "")
        body = answers[self.path].encode() if known else b"no"
        self.send_response(200 if known else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def alertmanager() -> Iterator[tuple[type[Alertmanager], str]]:
    handler = type("Handler", (Alertmanager,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}/am/"
    server.shutdown()
    thread.join()
    server.server_close()


def put(log: MemoryLog, key: str, value: object | None) -> None:
    log.append(INVENTORY, None if value is None else msgspec.json.encode(value), key=key.encode())


def site_reader(log: MemoryLog, clock: ManualClock, **settings: Any) -> SiteReader:
    silences = SilencesSettings(**settings)
    inventory = urljoin(silences.url, "/metrics") if silences.url else ""
    act = ActSettings(workers=(), inventory=inventory, silences=silences)
    return SiteReader(Configuration(act=act), clock, log.reader)


def test_maintenance_of_the_topic_is_a_window_until_it_is_over_or_taken_back() -> None:
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    put(log, "window/m1", Maintenance("m1", START_S, START_S + 60.0, ["n1"]))
    put(log, "window/m2", Maintenance("m2", START_S, START_S + 600.0, ["n2"]))
    reader = site_reader(log, clock)
    reader.refresh()
    assert [
        Window("m1", START_S, START_S + 60.0, ["n1"]),
        Window("m2", START_S, START_S + 600.0, ["n2"]),
    ] == reader.site.windows

    clock.advance(61.0)
    reader.refresh()
    assert ["m2"] == [one.name for one in reader.site.windows]
    put(log, "window/m2", None)
    reader.refresh()
    assert [] == reader.site.windows


def test_a_node_in_its_maintenance_window_is_not_drained_by_somebody() -> None:
    """Else the window would pass and the other's drain would stay: nothing is decided again."""
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    reader = site_reader(log, clock)
    put(log, "sched/n1", NodeInfo(name="n1", state="IDLE+MAINTENANCE"))
    put(log, "sched/n2", NodeInfo(name="n2", state="IDLE+DRAIN+MAINTENANCE", owner="ops"))
    put(log, "sched/n3", NodeInfo(name="n3", state="IDLE+MAINTENANCE"))
    put(log, "window/m1", Maintenance("m1", START_S, START_S + 60.0, ["n1", "n2"]))
    reader.refresh()
    assert {"n2": "ops", "n3": "somebody"} == reader.site.drained_by

    put(log, "window/m1", None)  # taken back; the nodes' states were listed a moment before
    clock.advance(10.0)
    reader.refresh()
    assert "n1" not in reader.site.drained_by
    clock.advance(120.0)
    reader.refresh()
    assert "somebody" == reader.site.drained_by["n1"]


def test_silences_of_known_nodes_are_windows(
    alertmanager: tuple[type[Alertmanager], str], tmp_path: Path
) -> None:
    handler, url = alertmanager
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    put(log, "sched/n1", NodeInfo(name="n1"))
    handler.silences = [silence('node="n1"'), silence('node="n2"'), silence('alertname="x"')]
    (tmp_path / "token").write_text("s3cr3t\n")
    reader = site_reader(log, clock, url=url, token_file=str(tmp_path / "token"))

    reader.refresh()

    assert "Bearer s3cr3t" == handler.authorization
    (window,) = reader.site.windows
    assert ("silence s1 by ops", ["n1"]) == (window.name, window.nodes)


def test_a_silence_may_call_a_node_what_its_agent_calls_it_and_no_other(
    alertmanager: tuple[type[Alertmanager], str],
) -> None:
    handler, url = alertmanager
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    for node, aliases in (("n1", ["gpu-7.site", "both"]), ("n2", ["both", "n1"])):
        put(log, f"sched/{node}", NodeInfo(name=node))
        made = msgspec.structs.replace(hardware(node, None), aliases=aliases)
        put(log, f"hw/{node}", made)
    handler.silences = [
        silence('instance="gpu-7.site:9100"', id="a"), silence('node="both"', id="b"),
        silence('node="n1"', id="c"), silence('node="gpu-7"', id="d"),
    ]  # fmt: skip
    reader = site_reader(log, clock, url=url)

    reader.refresh()

    found = {one.name.split()[1]: one.nodes for one in reader.site.windows}
    assert {"a": ["n1"], "c": ["n1"], "d": ["n1"]} == found


def test_silences_that_cannot_be_read_count_as_they_were_and_age(
    alertmanager: tuple[type[Alertmanager], str],
) -> None:
    """The listing is then as old as they are, and what is old lets nothing pass."""
    handler, url = alertmanager
    handler.silences = [silence('node="n1"')]
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    put(log, "sched/n1", NodeInfo(name="n1"))
    reader = site_reader(log, clock, url=url)
    reader.refresh()
    assert START_S == reader.site.listing_at

    handler.down, handler.listed_at = True, START_S + 90.0
    clock.advance(100.0)
    reader.refresh()
    assert START_S == reader.site.listing_at
    assert ["n1"] == reader.site.windows[0].nodes
    handler.down, handler.silences = False, []
    reader.refresh()
    assert (START_S + 90.0, []) == (reader.site.listing_at, reader.site.windows)


def test_where_silences_were_never_read_the_listing_is_of_unknown_age(
    alertmanager: tuple[type[Alertmanager], str],
) -> None:
    handler, url = alertmanager
    handler.down = True
    reader = site_reader(MemoryLog({INVENTORY: 1}), ManualClock(START_S), url=url)

    reader.refresh()

    assert None is reader.site.listing_at


# -- boots


def hardware(node: str, up_s: float | None) -> Hardware:
    return Hardware(at=0.0, node=node, source="host", started_at=0.0, seq=0, up_s=up_s)


def test_a_boot_is_the_schedulers_word_or_how_long_the_node_was_up_when_it_was_heard() -> None:
    log, clock = MemoryLog({INVENTORY: 1}), ManualClock(START_S)
    put(log, "sched/n1", NodeInfo(name="n1", boot_at=START_S - 500.0))
    put(log, "sched/n2", NodeInfo(name="n2"))
    log.now_ms = round(START_S * 1_000.0)
    put(log, "hw/n3", hardware("n3", 90.0))
    put(log, "hw/n4", hardware("n4", None))
    reader = site_reader(log, clock)

    reader.refresh()

    assert {"n1": START_S - 500.0, "n3": START_S - 90.0} == reader.site.booted_at


def test_the_same_boot_said_again_changes_nothing_and_the_next_one_does() -> None:
    log = MemoryLog({INVENTORY: 1})
    topic = InventoryTopic(log.reader)
    seen = []
    for heard_s, up_s in ((1_000.0, 100.0), (1_600.4, 700.0), (1_990.0, 1_100.0), (2_500.0, 60.0)):
        log.now_ms = round(heard_s * 1_000.0)
        put(log, "hw/n1", hardware("n1", up_s))
        topic.read()
        seen.append(topic.booted_at["n1"])

    assert [900.0, 900.0, 900.0, 2_440.0] == seen


def test_free_nodes_of_a_jobs_pod_are_replacements() -> None:
    log = MemoryLog({INVENTORY: 1})
    reader = site_reader(log, ManualClock(START_S))
    held = [JobNode(name="n1"), JobNode(name="n2")]
    put(log, "job/7", Job(id="7", nodes=held))
    words = {"n1": "ALLOCATED", "n2": "ALLOCATED", "n3": "IDLE", "n4": "IDLE+DRAIN"}
    for node, word in words.items():
        put(log, f"sched/{node}", NodeInfo(name=node, state=word, pod="p"))
    reader.refresh()
    assert JobFacts() == reader.job("7")  # no agent says what the nodes are made of

    for node in words:
        cards = [Gpu(index=0, uuid=f"GPU-{node}")]
        put(log, f"hw/{node}", msgspec.structs.replace(hardware(node, 9.0), gpus=cards))
    reader.refresh()
    assert JobFacts(replacements=1) == reader.job("7")
    assert JobFacts() == reader.job("8")


def test_a_topic_that_is_read_anew_keeps_what_was_known_until_it_is_read() -> None:
    log = MemoryLog({INVENTORY: 1})
    put(log, "window/m1", Maintenance("m1", 1.0, 2.0, ["n1"]))
    broken = [False]

    class Reader:
        def __init__(self) -> None:
            self._inner = log.reader()

        def __getattr__(self, name: str) -> object:
            if broken[0] and name != "close":
                raise SourceUnavailable("no broker")
            return getattr(self._inner, name)

    topic = InventoryTopic(Reader)  # type: ignore[arg-type]
    topic.read()
    assert 1 == len(topic.maintenance)
    broken[0] = True
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            topic.read()
        assert 1 == len(topic.maintenance)
    broken[0] = False
    put(log, "window/m1", None)
    topic.read()
    assert [] == topic.maintenance
