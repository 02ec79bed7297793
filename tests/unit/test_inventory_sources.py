"""Listings of schedulers: whole or nothing, with what ended lately, at the places they name."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.inventory.background import Background
from collectors.inventory.recent import Recent
from collectors.inventory.refined import Refined
from collectors.inventory.reservations import of_nodes, read_json, read_text
from collectors.inventory.slurm_commands import SlurmCommands
from collectors.inventory.slurm_rest import SlurmRest
from collectors.inventory.topology import Where, read_topology
from nodewarden.cli import run
from nodewarden.clock import SystemClock
from telemetry.errors import ListingIncomplete, SettingsError, SourceUnavailable
from telemetry.records import Allocation, Job, JobNode, Maintenance, NodeInfo
from telemetry.settings import InventorySettings, SlurmrestdSettings, SlurmSettings

CLOCK = SystemClock()
NODES = (
    '{"nodes": [{"name": "n1", "state": "idle"}, {"name": "n2", "state": "idle"}], "errors": []}'
)
JOBS = (
    '{"jobs": [{"job_id": 7, "job_state": "RUNNING", "nodes": "n[1-2]", "partition": "train",'
    ' "start_time": 1700000000}], "errors": []}'
)
NODE_TEXT = "NodeName=n1 Arch=x86_64\n   State=IDLE Partitions=train\n   Comment=a b=c\n\n"
RESERVED_TEXT = (
    "ReservationName=m1 StartTime=2026-11-30T01:36:25 EndTime=2026-11-30T02:36:25 Duration=1\n"
    "   Nodes=n[1-2],n9 NodeCnt=3 CoreCnt=2 Features=(null) PartitionName=(null) "
    "Flags=MAINT,IGNORE_JOBS,SPEC_NODES\n   TRES=cpu=2\n"
    "   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)\n"
    "   MaxStartDelay=(null)\n   Comment=Nodes=n7 Flags=NONE\n\n"
    "ReservationName=course StartTime=2026-12-03T01:36:25 EndTime=2027-12-03T01:36:25\n"
    "   Nodes=n1 NodeCnt=1 Flags=SPEC_NODES\n   Users=root State=INACTIVE\n\n"
    "ReservationName=licences StartTime=2026-12-03T01:36:25 EndTime=2027-12-03T01:36:25\n"
    "   Nodes=(null) NodeCnt=0 Flags=MAINT\n   Licenses=x:1\n\n"
)
RESERVED_JSON = (
    '{"errors": [], "reservations": [{"name": "m1", "node_list": "n[1-2],n9", "flags": ["MAINT"],'
    ' "start_time": 1796002585, "end_time": {"set": true, "number": 1796006185}},'
    ' {"name": "course", "node_list": "n1", "flags": [], "start_time": 1796002585, "end_time": 0}]}'
)
M1 = Maintenance("m1", 1_796_002_585.0, 1_796_006_185.0, ["n1", "n2"])  # n9 is not listed
JOB_TEXT = (
    "JobId=7 JobName=llm\n   JobState=RUNNING Reason=None\n   StartTime=2026-02-25T11:00:00\n"
    "   Partition=train\n   NodeList=n1\n\n"
)


def allocation(*jobs: Job, nodes: tuple[str, ...] = ("n1",)) -> Allocation:
    return Allocation(
        at=1.0, node="", source="inventory", started_at=0.0, seq=0, jobs=list(jobs),
        nodes=[NodeInfo(name=name) for name in nodes],
    )  # fmt: skip


def job(start: float, *nodes: str, attempt: int = 0, end: float | None = None) -> Job:
    held = [JobNode(name=name, since=start, until=end) for name in nodes]
    return Job(id="7", start=start, end=end, attempt=attempt, nodes=held)


# -- Slurm's commands


class Tools:
    """A directory with commands that print what a test wants, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Of the topology nothing is said; of reservations what the file holds.
        self.reserves("No reservations in the system\n")
        script = self._path / "scontrol"
        script.write_text(f'#!/bin/sh\n[ "$1" = --all ] || exit 0\ncat {self._path}/$3\n')
        script.chmod(0o755)
        self.says("sinfo", NODES)
        self.says("squeue", JOBS)

    def says(self, tool: str, text: str, status: int = 0, error: bool = False) -> None:
        (self._path / f"{tool}.out").write_text(text)
        to = "1>&2" if error else ""
        script = self._path / tool
        script.write_text(f"#!/bin/sh\ncat {self._path}/{tool}.out {to}\nexit {status}\n")
        script.chmod(0o755)

    def reserves(self, text: str) -> None:
        (self._path / "reservation").write_text(text)

    def source(self, **settings: Any) -> SlurmCommands:
        names = {tool: str(self._path / tool) for tool in ("sinfo", "squeue", "scontrol")}
        return SlurmCommands(SlurmSettings(**{**names, **settings}), CLOCK)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def test_json_of_both_commands_is_a_listing(tools: Tools) -> None:
    found = tools.source().listing()

    assert ["n1", "n2"] == [node.name for node in found.nodes]
    assert [("7", ["n1", "n2"])] == [(one.id, [n.name for n in one.nodes]) for one in found.jobs]


@pytest.mark.parametrize(
    ("tool", "text", "status"),
    [
        ("sinfo", NODES[:-30], 0),
        ("sinfo", "", 0),
        ("sinfo", '{"nodes": [], "errors": []}', 0),
        ("squeue", JOBS[:40], 0),
        ("squeue", JOBS, 1),
        ("squeue", JOBS.replace('"errors": []', '"errors": [{"error": "half of it"}]'), 0),
        ("squeue", JOBS.replace("n[1-2]", "n[1-"), 0),
        ("squeue", "slurm_load_jobs error: Unable to contact slurm controller", 1),
    ],
)
def test_a_listing_that_is_not_whole_is_none(
    tools: Tools, tool: str, text: str, status: int
) -> None:
    source = tools.source()
    tools.says(tool, text, status)

    with pytest.raises(SourceUnavailable, match=tool):
        source.listing()
    tools.says("sinfo", NODES)
    tools.says("squeue", JOBS)
    assert 2 == len(source.listing().nodes)


@settings(deadline=None)
@given(cut=st.integers(0, len(JOBS) - 1))
def test_no_cut_of_an_answer_is_a_listing(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tools = Tools(tmp_path_factory.mktemp("tools"))
    tools.says("squeue", JOBS[:cut])
    with pytest.raises(ListingIncomplete):
        tools.source().listing()


def test_a_slurm_without_json_is_read_as_text(tools: Tools, tmp_path: Path) -> None:
    tools.says("sinfo", "sinfo: unrecognized option '--json'", status=1, error=True)
    (tmp_path / "nodes").write_text(NODE_TEXT)
    (tmp_path / "jobs").write_text(JOB_TEXT)
    source = tools.source()

    found = source.listing()
    assert ["n1"] == [node.name for node in found.nodes]
    assert ["7"] == [one.id for one in found.jobs]
    (tmp_path / "jobs").write_text("No jobs in the system\n")
    assert [] == source.listing().jobs
    (tmp_path / "jobs").write_text(JOB_TEXT[:-2])
    with pytest.raises(ListingIncomplete, match="breaks off"):
        source.listing()
    with pytest.raises(SourceUnavailable, match="unrecognized"):
        tools.source(output="json").listing()


def test_a_command_that_hangs_or_floods_is_ended(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(SourceUnavailable, match="not done in time"):
        tools.source(timeout_s=0.3).listing()
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec cat /dev/zero\n")
    with pytest.raises(SourceUnavailable, match="more than 1000 bytes"):
        tools.source(output_max_bytes=1_000).listing()


def test_only_nodes_and_jobs_of_the_partitions_are_listed(tools: Tools) -> None:
    row = '{{"name": "{}", "state": "idle", "partitions": ["{}"]}}'
    tools.says("sinfo", f'{{"nodes": [{row.format("n1", "train")}, {row.format("n2", "cpu")}]}}')
    tools.says("squeue", JOBS.replace("n[1-2]", "n1"))

    found = tools.source(partitions=("train",)).listing()
    assert (["n1"], ["7"]) == ([n.name for n in found.nodes], [one.id for one in found.jobs])
    with pytest.raises(ListingIncomplete, match="no node in partition gpu"):
        tools.source(partitions=("gpu",)).listing()


# -- reservations


def test_reservations_for_maintenance_are_windows_of_the_listed_nodes(tools: Tools) -> None:
    tools.reserves(RESERVED_TEXT)

    assert [M1] == tools.source().listing().maintenance
    assert [] == tools.source(reservations=False).listing().maintenance
    tools.reserves("No reservations in the system\n")
    assert [] == tools.source().listing().maintenance


@pytest.mark.parametrize(
    "text",
    [
        "",
        RESERVED_TEXT[:200],
        RESERVED_TEXT.replace("ReservationName=m1", "ReservationName="),
        RESERVED_TEXT.replace("n[1-2]", "n[1-"),
        RESERVED_TEXT.replace("EndTime=2026-11-30T02:36:25", "EndTime=Unknown"),
        RESERVED_TEXT.replace("EndTime=2026-11-30T02:36:25", "EndTime=2026-11-30T01:36:25"),
    ],
)
def test_reservations_that_cannot_be_read_are_no_listing(tools: Tools, text: str) -> None:
    """Else what is under maintenance would be isolated. The line says how to do without."""
    tools.reserves(text)

    with pytest.raises(ListingIncomplete, match="reservations = false does without"):
        tools.source().listing()


@given(cut=st.integers(0, len(RESERVED_TEXT) - 1))
def test_a_cut_answer_is_none_or_names_the_same_windows(cut: int) -> None:
    whole = read_text(RESERVED_TEXT, "x")
    try:
        found = read_text(RESERVED_TEXT[:cut], "x")
    except ListingIncomplete:
        return
    assert whole == found


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"reservations": {}}', RESERVED_JSON[:90].encode(),
        RESERVED_JSON.replace('"errors": []', '"errors": [{"error": "half of it"}]').encode(),
        RESERVED_JSON.replace("n[1-2]", "n[1-").encode(),
        b'{"reservations": [7]}',
    ],
)  # fmt: skip
def test_an_answer_about_reservations_that_is_not_whole_is_none(body: bytes) -> None:
    with pytest.raises(ListingIncomplete, match="asked"):
        read_json(body, "asked")


def test_a_window_of_which_no_node_is_listed_is_none_and_never_one_of_all() -> None:
    assert [] == of_nodes([M1], ["n7"])
    assert ["n2"] == of_nodes([M1], ["n2", "n7"])[0].nodes


# -- what the scheduler says of boots


def test_a_boot_is_the_same_where_the_scheduler_counts_it_a_second_later() -> None:
    class Source:
        boot_s = 1_000.0

        def listing(self) -> Allocation:
            info = NodeInfo(name="n1", boot_at=self.boot_s)
            return msgspec.structs.replace(allocation(), nodes=[info])

    source = Source()
    refined = Refined(source, InventorySettings(), CLOCK)
    seen = []
    for source.boot_s in (1_000.0, 1_001.0, 999.0, 5_000.0):
        seen.append(refined.listing().nodes[0].boot_at)

    assert [1_000.0, 1_000.0, 1_000.0, 5_000.0] == seen


# -- topology


def test_leaves_pods_and_blocks_are_read() -> None:
    text = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n3,n4\n"
        "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]\n"
        "BlockName=b1 BlockIndex=0 Nodes=n[3-4] BlockSize=2\n"
    )
    assert {
        "n1": Where("", "s0", "s2"), "n2": Where("", "s0", "s2"),
        "n3": Where("b1", "s1", "s2"), "n4": Where("b1", "s1", "s2"),
    } == read_topology(text)  # fmt: skip
    assert Where("", "", "") == read_topology(text + "SwitchName=r1 Level=0 Nodes=n1\n")[
        "n1"
    ]._replace(pod="")
    assert {} == read_topology("No topology information available\n")
    with pytest.raises(ListingIncomplete):
        read_topology("SwitchName=s0 Level=0 Nodes=n[1-\n")


# -- what ended lately


def test_a_job_that_is_gone_ends_and_is_kept_for_a_while() -> None:
    recent = Recent(100.0)
    recent.with_ended(allocation(job(10.0, "n1", "n2")), 20.0)

    (ended,) = recent.with_ended(allocation(), 30.0).jobs
    assert (30.0, [30.0, 30.0]) == (ended.end, [node.until for node in ended.nodes])
    assert [ended] == recent.with_ended(allocation(), 129.0).jobs
    assert [] == recent.with_ended(allocation(), 130.0).jobs


def test_the_next_attempt_keeps_the_nodes_of_the_one_before() -> None:
    recent = Recent(100.0)
    recent.with_ended(allocation(job(10.0, "n1", "n2")), 20.0)
    recent.with_ended(allocation(), 30.0)

    (again,) = recent.with_ended(allocation(job(40.0, "n2", "n3", attempt=1)), 50.0).jobs
    assert (1, 40.0, None) == (again.attempt, again.start, again.end)
    assert [("n1", 10.0, 30.0), ("n2", 10.0, 30.0), ("n2", 40.0, None), ("n3", 40.0, None)] == [
        (node.name, node.since, node.until) for node in again.nodes
    ]


@given(st.lists(st.sets(st.sampled_from(["n1", "n2", "n3"])), min_size=1, max_size=8))
def test_whatever_is_listed_now_is_in_it_as_it_was_listed(shapes: list[set[str]]) -> None:
    recent = Recent(1_000.0)
    for turn, names in enumerate(shapes):
        now_s = 100.0 + 10.0 * turn
        listed = job(now_s - 5.0, *sorted(names), attempt=turn)
        said = allocation(*([listed] if names else []))
        result = recent.with_ended(said, now_s)
        assert result.nodes == said.nodes
        held = [node for one in result.jobs for node in one.nodes if node.until is None]
        assert held == (listed.nodes if names else [])
        for one in result.jobs:
            assert all((node.since or 0.0) < (node.until or 1e9) for node in one.nodes)


# -- what only the site knows


class Given:
    """A source that says what it is told to."""

    def __init__(self, answer: Allocation | Exception) -> None:
        self.answer = answer
        self.asked = 0

    def listing(self) -> Allocation:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_the_file_of_places_goes_before_the_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text('{"topology": {"n1": {"leaf": "l9", "rack": "r1"}, "n7": {"leaf": "l9"}}}')
    settings = InventorySettings(topology_file=str(file), protected=("n[2-3]",))

    found = Refined(Given(allocation(nodes=("n1", "n2"))), settings, CLOCK).listing()
    assert [("n1", "l9", "r1", False), ("n2", "", "", True)] == [
        (node.name, node.leaf, node.rack, node.protected) for node in found.nodes
    ]
    with pytest.raises(SettingsError, match=r"inventory\.protected"):
        Refined(Given(allocation()), InventorySettings(protected=("n[2-",)), CLOCK)


def test_a_slow_scheduler_is_waited_for_in_another_thread() -> None:
    class Slow(Given):
        def listing(self) -> Allocation:
            time.sleep(0.05 if self.asked == 0 else 30.0)
            return super().listing()

    source = Background(Slow(allocation()), 0.01, 0.5, CLOCK)
    began_s = time.monotonic()
    while True:
        try:
            assert ["n1"] == [node.name for node in source.listing().nodes]
        except SourceUnavailable as error:
            assert "has not answered for" in str(error)  # noqa: PT017 - it comes after a while
            break
        assert time.monotonic() < began_s + 30.0
        time.sleep(0.05)
    source.close()


def test_what_the_source_raises_is_raised_where_it_is_asked() -> None:
    failing = Given(ListingIncomplete("half of it"))
    source = Background(failing, 0.01, 10.0, CLOCK)
    for _ in range(2):
        with pytest.raises(ListingIncomplete, match="half of it"):
            source.listing()
    source.close()


# -- slurmrestd


class Rest(http.server.BaseHTTPRequestHandler):
    """Answers v0.0.40; `cut` breaks off its answers."""

    cut = 0
    promised = True

    def do_GET(self) -> None:
        bodies = {"ping": "{}", "nodes": NODES, "jobs": JOBS, "reservations": RESERVED_JSON}
        _, _, version, what = self.path.split("/")
        known = version == "v0.0.40" and self.headers["X-SLURM-USER-TOKEN"] == "t.o.k"
        body = bodies[what].encode() if known else b"Unable find requested URL"
        self.send_response(200 if known else 404)
        if self.promised:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - (self.cut if what == "jobs" else 0)])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[type[Rest], SlurmRest]]:
    handler = type("Handler", (Rest,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=t.o.k\n")
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    settings = SlurmrestdSettings(url=url, user="u", token_file=str(token), timeout_s=5.0)
    yield handler, SlurmRest(settings, (), CLOCK)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("promised", [True, False])
def test_the_version_is_found_and_a_cut_answer_is_none(
    rest: tuple[type[Rest], SlurmRest], promised: bool
) -> None:
    handler, source = rest
    handler.promised = promised
    assert ["7"] == [one.id for one in source.listing().jobs]
    handler.cut = 9
    with pytest.raises(ListingIncomplete, match="jobs"):
        source.listing()
    handler.cut = 0
    assert ["7"] == [one.id for one in source.listing().jobs]


@pytest.mark.parametrize("url", ["x", "ftp://a", "http://", "http://a:0", "http://a b"])
def test_an_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match=r"inventory\.slurmrestd\.url"):
        SlurmRest(SlurmrestdSettings(url=url), (), CLOCK)


def test_a_socket_that_is_not_there_is_said(tmp_path: Path) -> None:
    source = SlurmRest(SlurmrestdSettings(url=f"unix:{tmp_path}/none.sock"), (), CLOCK)
    with pytest.raises(SourceUnavailable, match="No such file or directory"):
        source.listing()


# -- the command line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no source"),
        (("--slurm", "--kubernetes"), "asks one source"),
        (("--slurm", "--kubeconfig", "x"), "--kubeconfig belongs to --kubernetes"),
        (("--slurmrestd", "x"), "inventory.slurmrestd.url"),
        (("--kubernetes", "--kubeconfig", "/none"), "/none"),
    ],
)
def test_a_source_that_cannot_be_asked_is_one_line(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(["inventory", "--once", "--stdout", *options], dict(os.environ))
    error = capsys.readouterr().err
    assert said in error
    assert 1 == error.count("\n")
