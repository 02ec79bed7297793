"""What Slurm's commands and slurmrestd answer, read; and what is no answer."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.executors import slurm_json, slurm_text
from actions.executors.slurm_commands import SlurmCommands
from actions.executors.slurm_port import CallTime
from actions.executors.slurm_rest import SlurmRest
from actions.executors.slurm_resubmit import new_job, resubmit
from nodewarden.clock import SystemClock
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.settings import ActSlurmSettings
from tests.slurm_fake import FakeSlurm

CLOCK = SystemClock()
# As Slurm 22.05.8 and 24.11.5 print them, left short.
NODE_TEXT = """\
NodeName=node2 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=2.12
   Gres=(null)
   NodeAddr=127.0.0.1 NodeHostName=vm Port=23001 Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   BootTime=2026-11-29T18:17:18 SlurmdStartTime=2026-11-30T01:27:08
   Reason=nodewarden:gpu_lost:i1 [root@2026-11-30T01:27:31]

"""
JOB_TEXT = """\
JobId=4 ArrayJobId=3 ArrayTaskId=1 JobName=wrap
   UserId=otto(1000) GroupId=staff of otto(20) MCS_label=N/A
   Priority=0 Nice=0 Account=(null) QOS=(null)
   JobState=PENDING Reason=job_requeued_in_held_state Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0
   SubmitTime=2026-11-30T01:27:31 EligibleTime=2026-11-30T01:29:32
   ReqNodeList=(null) ExcNodeList=node[2,7-8]
   NodeList=
   Command=(null)
   Comment=Requeue=0 Restarts=9

"""
NUMBER = {"set": True, "infinite": False, "number": 1_795_976_237}
NODE_JSON = {
    "name": "node2", "hostname": "vm", "state": ["IDLE", "DRAIN"], "boot_time": NUMBER,
    "reason": "nodewarden:gpu_lost:i1", "reason_set_by_user": "root",
}  # fmt: skip
OLD_NODE_JSON = {
    "name": "node2", "state": "idle", "state_flags": ["DRAIN"], "boot_time": 1_795_976_237,
    "reason": "nodewarden:gpu_lost:i1", "reason_set_by_user": None,
}  # fmt: skip
JOB_JSON = {
    "job_id": 4, "job_state": ["PENDING"], "array_job_id": {**NUMBER, "number": 3},
    "array_task_id": {**NUMBER, "number": 1}, "restart_cnt": 1, "nodes": "", "requeue": True,
    "batch_flag": True, "excluded_nodes": "node[2,7-8]", "priority": {**NUMBER, "number": 0},
    "eligible_time": {**NUMBER, "number": 1_796_002_529}, "state_reason": "JobHeldUser",
    "user_id": 1_000,
}  # fmt: skip


def document(**lists: Any) -> bytes:
    return msgspec.json.encode({"errors": [], "warnings": [], **lists})


# -- answers


def test_the_text_and_the_json_of_a_node_say_the_same() -> None:
    text = slurm_text.nodes(NODE_TEXT, "scontrol")["node2"]
    new = slurm_json.nodes(document(nodes=[NODE_JSON]), "scontrol")["node2"]
    old = slurm_json.nodes(document(nodes=[OLD_NODE_JSON]), "GET")["node2"]
    assert "IDLE+DRAIN" == text.state.text == new.state.text == old.state.text
    assert "nodewarden:gpu_lost:i1" == text.reason == new.reason == old.reason
    assert ("root", "root", "") == (text.reason_by, new.reason_by, old.reason_by)
    assert 1_795_976_238.0 == text.boot_at
    assert 1_795_976_237.0 == new.boot_at == old.boot_at


def test_the_text_and_the_json_of_a_job_say_the_same() -> None:
    text = slurm_text.job(JOB_TEXT, "scontrol", "3_1")
    read = slurm_json.job(document(jobs=[JOB_JSON]), "scontrol", "3_1")
    assert text is not None
    assert read is not None
    for one in (text, read):
        assert (1, True, True, True) == (one.restarts, one.may_requeue, one.is_batch, one.held)
        assert (("node2", "node7", "node8"), (), 1_000) == (one.excluded, one.nodes, one.user)
    assert 1_796_002_172.0 == text.begins_at


def test_a_reason_of_several_lines_is_not_ours() -> None:
    broken = NODE_TEXT.replace("i1 [root", "i1\nADMIN: wait [root")
    assert "nodewarden:gpu_lost:i1" != slurm_text.nodes(broken, "scontrol")["node2"].reason


def test_a_jobs_name_that_looks_like_a_field_says_nothing() -> None:
    named = JOB_TEXT.replace("JobName=wrap", "JobName=x Requeue=1 JobState=RUNNING")
    one = slurm_text.job(named, "scontrol", "4")
    assert one is not None
    assert "PENDING" == one.state.word
    twice = JOB_TEXT.replace("   UserId", "   Restarts=7 UserId")
    one = slurm_text.job(twice, "scontrol", "4")
    assert one is not None
    assert one.restarts is None


@pytest.mark.parametrize(
    ("said", "user"), [("DOM\\otto(70001)", 70_001), ("otto", None), ("", None), ("otto()", None),
                       ("(0)", 0), ("otto(-1)", None), ("a(0) b(7)", None)],
)  # fmt: skip
def test_whose_job_it_is_is_said_in_numbers_or_not_at_all(said: str, user: int | None) -> None:
    one = slurm_text.job(JOB_TEXT.replace("otto(1000)", said), "scontrol", "4")
    assert one is not None
    assert user == one.user
    forged = JOB_TEXT.replace("JobName=wrap", "JobName=x\n   UserId=root(0)")
    twice = slurm_text.job(forged, "scontrol", "4")
    assert twice is not None
    assert twice.user is None
    silent = {key: value for key, value in JOB_JSON.items() if key != "user_id"}
    read = slurm_json.job(document(jobs=[silent]), "scontrol", "4")
    assert read is not None
    assert read.user is None


def test_a_whole_array_is_no_single_job() -> None:
    two = JOB_TEXT + JOB_TEXT.replace("JobId=4", "JobId=3").replace("TaskId=1", "TaskId=2")
    with pytest.raises(SourceUnavailable, match="2 jobs"):
        slurm_text.job(two, "scontrol", "3")
    rows = [JOB_JSON, {**JOB_JSON, "job_id": 3, "array_task_id": 2}]
    with pytest.raises(SourceUnavailable, match="2 jobs"):
        slurm_json.job(document(jobs=rows), "GET", "3")
    task = slurm_json.job(document(jobs=rows), "GET", "3_2")
    assert task is not None
    assert "3_2" == task.id


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"null", b'{"nodes": null}', b'{"nodes": [{}]}', b'{"nodes": {}}',
     b'{"nodes": [{"name": 1}]}', b"\xff", b'{"nodes": [], "errors": [{"description": "x"}]}',
     b'{"nodes": [{"name": "n1"}]}'],
)  # fmt: skip
def test_i6_an_answer_of_another_shape_is_none(body: bytes) -> None:
    with pytest.raises(SourceUnavailable):
        slurm_json.nodes(body, "scontrol")
    with pytest.raises(SourceUnavailable):
        slurm_json.job(body.replace(b"nodes", b"jobs"), "scontrol", "4")


@given(st.text(max_size=400) | st.sampled_from([NODE_TEXT, JOB_TEXT]).map(lambda t: t[:200]))
def test_i6_any_text_is_read_or_refused(text: str) -> None:
    for read in (
        lambda: slurm_text.nodes(text, "scontrol"), lambda: slurm_text.job(text, "scontrol", "4"),
    ):  # fmt: skip
        with suppress(SourceUnavailable):
            read()


@pytest.mark.parametrize(
    ("tasks", "known"),
    [("1", [1]), ("1-3", [1, 2, 3]), ("1-9:4,12%2", [1, 5, 9, 12]), ("", []), ("x", []),
     ("1-9:0", list(range(1, 10)))],
)  # fmt: skip
def test_tasks_that_wait_together_are_each_found(tasks: str, known: list[int]) -> None:
    assert known == [n for n in range(20) if slurm_json.is_task(f"3_{n}", "3", tasks)]
    assert not slurm_json.is_task("4_1", "3", tasks)
    assert not slurm_json.is_task("3", "3", tasks)
    text = slurm_text.job(JOB_TEXT.replace("TaskId=1", "TaskId=1-9%2"), "scontrol", "3_7")
    assert text is not None
    waiting = {**JOB_JSON, "array_task_id": None, "array_task_string": "1-9%2"}
    assert slurm_json.job(document(jobs=[waiting]), "GET", "3_7") is not None


# -- commands

Script = Callable[..., SlurmCommands]


@pytest.fixture
def scripted(tmp_path: Path) -> Script:
    """`scontrol` as a shell script; $* is what it is asked. It writes its calls to `calls`."""

    def made(body: str, **settings: Any) -> SlurmCommands:
        program = tmp_path / "scontrol"
        program.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n{body}\n')
        program.chmod(0o755)
        of_slurm = ActSlurmSettings(
            scontrol=str(program), scancel=str(program), timeout_s=5.0, **settings
        )
        return SlurmCommands(of_slurm, CLOCK, CallTime(CLOCK, 10.0, 5.0).left_s)

    return made


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def here(text: str) -> str:
    return f"cat <<'END'\n{text}END"


OLD = 'case "$*" in *--json*) echo "scontrol: unrecognized option \'--json\'" >&2; exit 1;; esac\n'


def test_where_there_is_no_json_the_text_is_read_from_then_on(
    scripted: Script, tmp_path: Path
) -> None:
    slurm = scripted(OLD + here(NODE_TEXT))
    assert slurm.nodes(["node2"])["node2"].is_drained
    assert slurm.nodes(["node2"])["node2"].is_drained
    assert ["show node node2 --json", "show node node2", "show node node2"] == calls(tmp_path)


def test_newer_ones_leave_out_of_their_json_what_they_do_not_know(scripted: Script) -> None:
    """The text form says so: silence alone is no absence."""
    answer = here(document(nodes=[NODE_JSON]).decode() + "\n")
    absent = scripted(
        f'case "$*" in *--json*) {answer}\n;; *) {here(NODE_TEXT)}\n'
        'echo "Node node9 not found"; exit 1;; esac'
    )
    assert ["node2"] == list(absent.nodes(["node2", "node9"]))
    silent = scripted(f'case "$*" in *--json*) {answer}\n;; *) {here(NODE_TEXT)}\n;; esac')
    with pytest.raises(SourceUnavailable, match="says nothing of node9"):
        silent.nodes(["node2", "node9"])


def test_a_job_is_gone_only_where_slurm_says_so(scripted: Script) -> None:
    empty = 'case "$*" in *--json*) echo \'{"jobs": [], "errors": []}\'; exit 0;; esac\n'
    gone = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
    assert scripted(empty + gone).job("9") is None
    with pytest.raises(SourceUnavailable):
        scripted(empty + "exit 0").job("9")
    with pytest.raises(SourceUnavailable):
        scripted(empty + 'echo "Unable to contact slurm controller" >&2; exit 1').job("9")


@pytest.mark.parametrize(
    ("said", "state"),
    [("COMPLETED\n", "COMPLETED"), ("NODE_FAIL\nCANCELLED by 1000\n", "CANCELLED"), ("", None),
     ("RUNNING\n", None), ("DANCING\n", None), ("COMPLE", None)],
)  # fmt: skip
def test_accounting_says_how_a_forgotten_job_ended(
    scripted: Script, tmp_path: Path, said: str, state: str | None
) -> None:
    sacct = tmp_path / "sacct"
    sacct.write_text(f"#!/bin/sh\necho \"$*\" >>{tmp_path}/calls\nprintf '%s' '{said}'\n")
    sacct.chmod(0o755)
    gone = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
    found = scripted(gone, output="text", sacct=str(sacct)).job("9")
    assert state == (None if found is None else found.state.word)
    assert "--jobs=9 --format=State" in calls(tmp_path)[-1]
    sacct.write_text("#!/bin/sh\necho Slurm accounting storage is disabled >&2; exit 1\n")
    assert scripted(gone, output="text", sacct=str(sacct)).job("9") is None


@pytest.mark.parametrize(
    "body", ["exit 1", "exit 0", "echo '{}'", 'echo "{\\"nodes\\": []}"', "kill -9 $$", "echo x"]
)
def test_i6_a_command_that_fails_or_says_nothing_is_no_answer(scripted: Script, body: str) -> None:
    slurm = scripted(body)
    with pytest.raises(SourceUnavailable):
        slurm.nodes(["node2"])
    with pytest.raises(SourceUnavailable):
        slurm.job("4")


def test_i6_a_command_that_hangs_is_ended_in_time(scripted: Script, tmp_path: Path) -> None:
    slurm = scripted("exec sleep 60")
    hasty = SlurmCommands(
        ActSlurmSettings(scontrol=str(tmp_path / "scontrol")), CLOCK,
        CallTime(CLOCK, 0.6, 0.3).left_s,
    )  # fmt: skip
    with pytest.raises(SourceUnavailable, match="not done in time"):
        hasty.nodes(["node2"])
    assert slurm is not None


@pytest.mark.parametrize(
    "said",
    ["slurm_update error: Invalid node name specified",
     "slurm_update error: Access/permission denied",
     "Requested operation is presently disabled for job 2"],
)  # fmt: skip
def test_a_refusal_that_we_know_is_certain_and_any_other_failure_is_not(
    scripted: Script, said: str
) -> None:
    assert said == scripted(f'echo "{said}" >&2; exit 1').drain(["node2"], "x:y:z")
    assert "" == scripted("exit 0").change("4", "requeue_hold")
    for failure in (
        'echo "Unable to contact slurm controller" >&2; exit 1',
        "exit 1",
        "kill -9 $$",
    ):
        with pytest.raises(SourceUnavailable):
            scripted(failure).drain(["node2"], "x:y:z")


def test_what_is_asked_is_a_list_of_arguments(scripted: Script, tmp_path: Path) -> None:
    slurm = scripted("exit 0")
    slurm.drain(["n1", "n2"], "nodewarden:gpu_lost:i1")
    slurm.undrain(["n1"])
    for what in ("requeue_hold", "release", "begin_now", "cancel"):
        slurm.change("3_1", what)
    slurm.exclude("7", {"n2", "n1"})
    assert [
        "update nodename=n1,n2 state=drain reason=nodewarden:gpu_lost:i1",
        "update nodename=n1 state=undrain reason=given back by nodewarden",
        "requeuehold 3_1", "release 3_1", "update jobid=3_1 starttime=now+2", "3_1",
        "update jobid=7 excnodelist=n1,n2",
    ] == calls(tmp_path)  # fmt: skip


@pytest.mark.parametrize("name", ["n[1-2]", "n1;reboot", "$(x)", "--all", "n1\nn2", ""])
def test_no_other_name_reaches_a_command(scripted: Script, tmp_path: Path, name: str) -> None:
    slurm = scripted("exit 0")
    with pytest.raises(ValueError, match="is no name of one node"):
        slurm.drain([name], "x:y:z")
    with pytest.raises(ValueError, match="is no id"):
        slurm.change(name, "cancel")
    assert not (tmp_path / "calls").exists()


def test_the_sites_command_gets_the_job_and_the_nodes(tmp_path: Path) -> None:
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\necho "$# $1 $2 $3 ${NODEWARDEN_CODE_VERSION-none}"; echo "$N"\n')
    program.chmod(0o755)
    again = resubmit([str(program), "--now"], {"N": "8"}, CLOCK, lambda: 5.0)
    assert ("3 --now 7 n1,n2 none 8", "8") == again("7", ["n1", "n2"], {})
    assert "3 --now 7 n1 v2 8" == again("7", ["n1"], {"code": "v2", "x": "y"}).said
    assert "3 --now 7 n1 none 8" == again("7", ["n1"], {"code": "$(id)"}).said
    assert "" == again("8", ["n1"], {}).job  # it is no other one
    program.write_text("#!/bin/sh\necho no >&2; exit 3\n")
    with pytest.raises(SourceUnavailable, match="no"):
        again("7", ["n1"], {})


@pytest.mark.parametrize(
    ("printed", "job"),
    [("8\n", "8"), ("8;cluster\n", "8"), ("Submitted batch job 8\n", "8"),
     ("Submitted batch job 8 on cluster east\n", "8"), ("trying\nSubmitted batch job 8\n", "8"),
     ('{"meta": {"x": [1]}, "job_id": 8, "errors": []}', "8"),
     ('{"result": {"job_id": 8, "step_id": "batch"}, "job_id": 8}', "8"),
     ('{"result": {"job_id": 8}}', "8"), ("", ""), ("ok", ""), ("8\n9\n", ""), ("8 nodes\n", ""),
     ("-8", ""), ("08", ""), ('{"job_id": 8, "result": {"job_id": 9}}', ""), ('{"job_id": 0}', ""),
     ('{"job_id": "8"}', ""), ("[" * 10_000, ""), ("12345678901", "")],
)  # fmt: skip
def test_the_new_job_is_known_where_one_id_is_printed_and_no_other(printed: str, job: str) -> None:
    assert job == new_job(printed)


# -- slurmrestd

Answers = dict[str, tuple[int, bytes]]


@contextmanager
def served(answers: Answers) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """URL of a slurmrestd that knows these requests, and what it was asked."""
    asked: list[tuple[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(size)) if size else None
            what = f"{self.command} {self.path}"
            asked.append((what, body))
            status, data = answers.get(what, (404, b"no such path"))
            if self.headers["X-SLURM-USER-TOKEN"] != "abc":
                status, data = 401, b"Authentication failure"
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def rest(url: str, lacking: FakeSlurm | None = None, **settings: Any) -> SlurmRest:
    of_slurm = ActSlurmSettings(api="rest", url=url, **{"token": "abc", **settings})
    return SlurmRest(of_slurm, CLOCK, CallTime(CLOCK, 10.0, 5.0).left_s, lacking)


NEW, OLDEST = "/slurm/v0.0.42", "/slurm/v0.0.38"
FINE = document()
UNSEEN = {"description": "Failure to query node node9", "error": "No error", "error_number": 0}
FAILED_NODE = msgspec.json.encode({"errors": [UNSEEN]})
NO_JOB = msgspec.json.encode({"jobs": [], "errors": [{"error_number": 2017, "error": "Invalid"}]})
DISABLED = msgspec.json.encode({"errors": [{"description": 'Disabled key: "excluded_nodes"'}]})


def new_one(**more: tuple[int, bytes]) -> Answers:
    return {
        f"GET {NEW}/ping": (200, FINE),
        f"GET {NEW}/node/node2": (200, document(nodes=[NODE_JSON])),
        f"GET {NEW}/node/node9": (200, FAILED_NODE),
        f"GET {NEW}/nodes": (200, document(nodes=[NODE_JSON])),
        f"GET {NEW}/job/3": (200, document(jobs=[JOB_JSON])),
        f"GET {NEW}/job/9": (404, NO_JOB),
        f"POST {NEW}/node/node2": (200, FINE),
        f"POST {NEW}/job/4": (200, FINE),
        f"DELETE {NEW}/job/4": (200, FINE),
        **more,
    }  # fmt: skip


def test_the_newest_version_that_both_know_is_spoken() -> None:
    with served(new_one()) as (url, asked):
        slurm = rest(url)
        assert slurm.nodes(["node2"])["node2"].is_drained
        job = slurm.job("3_1")
        assert job is not None
        assert job.held
    assert [f"GET /slurm/v0.0.{number}/ping" for number in range(45, 41, -1)] == [
        what for what, _ in asked[:4]
    ]


def test_a_node_that_is_gone_is_looked_for_in_the_whole_listing() -> None:
    with served(new_one()) as (url, _):
        assert {} == rest(url).nodes(["node9"])
        assert rest(url).job("9") is None
    empty = new_one(**{f"GET {NEW}/nodes": (200, document(nodes=[]))})
    unseen = pytest.raises(SourceUnavailable, match="a cluster has nodes")
    with served(empty) as (url, _), unseen:
        rest(url).nodes(["node9"])


def test_changes_are_said_as_the_version_wants_them() -> None:
    with served(new_one()) as (url, asked):
        slurm = rest(url)
        assert "" == slurm.drain(["node2"], "nodewarden:gpu_lost:i1")
        assert "" == slurm.undrain(["node2"])
        assert "" == slurm.exclude("4", ["node7", "node2"])
        assert "" == slurm.change("4", "release")
        assert "" == slurm.change("4", "cancel")
        slurm.change("4", "begin_now")
    said = [body for _, body in asked if body]
    assert {"state": ["DRAIN"], "reason": "nodewarden:gpu_lost:i1"} == said[0]
    assert {"state": ["UNDRAIN"], "reason": "given back by nodewarden"} == said[1]
    assert [{"excluded_nodes": ["node2", "node7"]}, {"hold": False}] == said[2:4]
    assert said[4]["begin_time"]["set"] is True


def test_what_it_lacks_is_refused_or_done_by_commands() -> None:
    old = {
        f"GET {OLDEST}/ping": (200, FINE),
        f"POST {OLDEST}/node/node2": (405, b"Requested REST method is not defined at URL."),
        f"POST {OLDEST}/job/4": (200, DISABLED),
    }  # fmt: skip
    with served(old) as (url, _):
        slurm = rest(url)
        for refused in (slurm.drain(["node2"], "x:y:z"), slurm.exclude("4", ["node2"]),
                        slurm.change("4", "requeue_hold")):  # fmt: skip
            assert 'set act.slurm.rest_lacks = "commands"' in refused
        other = FakeSlurm("node2")
        other.run("4", "node2")
        helped = rest(url, other)
        assert "" == helped.drain(["node2"], "x:y:z") == helped.change("4", "requeue_hold")
        assert ["drain node2 x:y:z", "requeue_hold 4"] == other.calls


def test_a_task_of_an_array_is_never_updated_as_its_whole_array() -> None:
    cancelled = {f"DELETE {NEW}/job/3_1": (200, FINE)}
    with served(new_one(**cancelled)) as (url, asked):
        slurm = rest(url)
        assert "no single task" in slurm.exclude("3_1", ["node2"])
        assert "no single task" in slurm.change("3_1", "release")
        assert "" == slurm.change("3_1", "cancel")
    assert not [what for what, _ in asked if what.startswith("POST")]


@pytest.mark.parametrize(
    "answer", [(500, b""), (200, DISABLED[:-2]), (200, b"{}"), (502, b"<html>")]
)
def test_i6_what_cannot_be_read_is_no_answer(answer: tuple[int, bytes]) -> None:
    answers = new_one(**{f"GET {NEW}/node/node2": answer})
    with served(answers) as (url, _), pytest.raises(SourceUnavailable):
        rest(url).nodes(["node2"])


def test_an_error_of_a_change_is_a_refusal_only_where_it_is_certain() -> None:
    gone = msgspec.json.encode({"errors": [{"error": "Invalid node name", "error_number": 2018}]})
    with served(new_one(**{f"POST {NEW}/node/node2": (500, gone)})) as (url, _):
        assert "Invalid node name" == rest(url).drain(["node2"], "x:y:z")
    odd = msgspec.json.encode({"errors": [{"error": "Unspecified error", "error_number": -1}]})
    unclear = pytest.raises(SourceUnavailable, match="Unspecified error")
    with served(new_one(**{f"POST {NEW}/node/node2": (500, odd)})) as (url, _), unclear:
        rest(url).drain(["node2"], "x:y:z")


def test_a_wrong_token_is_said_with_its_remedy_and_never_shown(tmp_path: Path) -> None:
    with served(new_one()) as (url, _):
        with pytest.raises(SourceUnavailable, match=r"check act\.slurm\.token_file") as failed:
            rest(url, token="secret").nodes(["node2"])
        assert "secret" not in str(failed.value)
        token = tmp_path / "token"
        token.write_text("SLURM_JWT=abc\n")
        assert rest(url, token="", token_file=str(token)).nodes(["node2"])
        token.write_text("no token at all")
        with pytest.raises(SourceUnavailable, match="no token"):
            rest(url, token="", token_file=str(token)).nodes(["node2"])


def test_a_url_or_a_version_that_is_none_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"act\.slurm\.url"):
        rest("ftp://here")
    with pytest.raises(SettingsError, match=r"act\.slurm\.version"):
        rest("http://127.0.0.1:1", version="41")
    with pytest.raises(SettingsError, match=r"none of v0\.0\.38 to v0\.0\.45"):
        rest("http://127.0.0.1:1", version="v0.0.99")


def test_where_nobody_listens_nothing_is_known() -> None:
    with pytest.raises(SourceUnavailable):
        rest("http://127.0.0.1:1").nodes(["node2"])
