"""Lines that tell of a failure by themselves, a row a form; tracebacks are the fold's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from collectors.training import signals
from collectors.training.causes import failure_class, sign_of
from collectors.training.model import Failure, Value

TEXT_MAX = 4_096
NUMBER = r"(-?\d{1,15})"

Make = Callable[[re.Match[str], str], "Failure | None"]


@dataclass(frozen=True, slots=True)
class FailureForm:
    """One line form.

    marker   stands in every such line
    make     makes the failure of the regex's match and the whole line, None where it is none
    """

    name: str
    marker: str
    regex: re.Pattern[str]
    make: Make
    example: str
    source: str


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None else None


_WARN = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    r" \[(?P<gpu>\d{1,4})\] )?"
    r"(?:\d{1,9} )?(?:(?P<place>[\w./-]{1,200}:\d{1,7}) )?NCCL WARN (?P<words>.{1,4000})"
)
_NIC = re.compile(r"\b((?:mlx5|bnxt_re|irdma|efa|rdmap|hns|mlx4|ionic)[\w-]{0,24}):(\d{1,3})\b")
_PEER = re.compile(r"from peer (\S{1,100}?)(?:<(\d{1,5})>)? with status=(\d{1,6})")
_VENDOR = re.compile(r"vendor err (\d{1,6})")
_NETWORK = ("NET/", "ibv_", "port error", "async event", "Connection", "connect", "socket")
_FLUSHED = 5  # IBV_WC_WR_FLUSH_ERR: the queue was closed for another error
_BROKEN = ("completion from peer", "port error", "fatal", "failed with error", "timeout",
           "Connection reset", "Connection closed", "unhandled", "Call to ")  # fmt: skip


def _warned(found: re.Match[str], text: str) -> Failure:
    words = found["words"]
    more: dict[str, Value] = {"event": "nccl_warn"}
    if found["gpu"] is not None:
        more["device"] = int(found["gpu"])
    network = any(word in words for word in _NETWORK)
    nic, peer, vendor = _NIC.search(words), _PEER.search(words), _VENDOR.search(words)
    if nic is not None:
        more["nic"] = f"{nic[1]}/{nic[2]}"
    status = None
    if peer is not None:
        status = int(peer[3])
        more |= {"peer": peer[1], "status": status}
    if vendor is not None:
        more["vendor_error"] = int(vendor[1])
    failure = Failure("network" if network else "nccl", text, host=found["host"], more=more)
    failure.detail = {None: "", 12: "retry_exceeded", _FLUSHED: "flushed"}.get(status, "completion")
    if "port error" in words:
        failure.detail = "port_error"
    if status == _FLUSHED:
        failure.role = "echo"
    elif not any(word in words for word in _BROKEN):
        failure.role = "warning"
    return failure


_CAUGHT = re.compile(
    r"(?:\[Rank (?P<rank>\d{1,7})\] )?Watchdog caught collective operation timeout:\s*"
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,15}), )?(?:OpType=(?P<op>\w{1,60}), )?"
    r"(?:NumelIn=(?P<numel_in>\d{1,18}), )?(?:NumelOut=(?P<numel_out>\d{1,18}), )?"
    r"Timeout\(ms\)=(?P<limit_ms>\d{1,12})\)\s*ran for (?P<ran_ms>\d{1,12}) milliseconds"
)


def _timed_out(found: re.Match[str], text: str) -> Failure:
    ran_s, limit_s = int(found["ran_ms"]) / 1000.0, int(found["limit_ms"]) / 1000.0
    return Failure(
        "nccl", text, "collective_timeout", rank=_whole(found["rank"]),
        more={"event": "watchdog_timeout", "seq": _whole(found["seq"]), "op": found["op"],
              "numel_in": _whole(found["numel_in"]), "numel_out": _whole(found["numel_out"]),
              "timeout_s": limit_s, "ran_s": ran_s},
    )  # fmt: skip


_AT_WORK = re.compile(
    r"(?:PG (?:ID )?(?P<pg>\d{1,9})[^\]]{0,120}? Rank (?P<rank>\d{1,7})\])?\s{0,4}"
    r"(?:Exception \(either an error or timeout\) detected by watchdog at work:"
    r"|failure detected by watchdog at work sequence id:|Timeout at NCCL work:) (?P<seq>\d{1,15})"
    r"(?:.{0,40}last enqueued(?: NCCL)? work: (?P<enqueued>-?\d{1,15}))?"
    r"(?:, last completed(?: NCCL)? work: (?P<completed>-?\d{1,15}))?"
)


def _at_work(found: re.Match[str], text: str) -> Failure:
    return Failure(
        "nccl", text, "collective_timeout", rank=_whole(found["rank"]),
        more={"event": "watchdog", "seq": int(found["seq"]), "pg": _whole(found["pg"]),
              "last_enqueued": _whole(found["enqueued"]),
              "last_completed": _whole(found["completed"])},
    )  # fmt: skip


_TERMINATED = re.compile(
    r"(?:Rank (?P<rank>\d{1,7})\]\s{0,4})?Process group watchdog thread terminated with"
    r" exception: (?P<words>.{1,4000})"
)


def _watchdog_died(found: re.Match[str], text: str) -> Failure:
    class_, detail = failure_class("", found["words"])
    return Failure(class_, text, detail, rank=_whole(found["rank"]),
                   more={"event": "watchdog_exception"})  # fmt: skip


_TEARDOWN = re.compile(
    r"(?:Rank (?P<rank>\d{1,7})\]\s{0,4})?(?:Some NCCL operations have failed or timed out"
    r"|To avoid data inconsistency, we are taking the entire process down"
    r"|ProcessGroupNCCL preparing to dump debug info"
    r"|Stack trace of the failed collective not found)"
)


def _teardown(found: re.Match[str], text: str) -> Failure:
    return Failure("nccl", text, "teardown", rank=_whole(found["rank"]), role="echo",
                   more={"event": "watchdog_teardown"})  # fmt: skip


_EXITED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5})"
    r" \(pid: (?P<pid>\d{1,10})\)"
)


def exited(code: int, text: str, **more: Value) -> Failure:
    """A process that left with an exit code."""
    name = signals.signal_of(code)
    return Failure(signals.exit_class(code), text, "signal" if name else "exit",
                   more={"event": "exit", "exitcode": code, "signal": name, **more})  # fmt: skip


def _exit(found: re.Match[str], text: str) -> Failure:
    failure = exited(int(found["code"]), text, pid=int(found["pid"]))
    failure.local_rank = int(found["local"])
    return failure


_OOM_KILL = re.compile(
    r"[Dd]etected (?P<count>\d{1,6}) oom[-_ ]kill event(?:\(s\)|s)?"
    r" in (?:step |StepId=)(?P<step>[\w.+]{1,40})"
)


def _slurm_oom(found: re.Match[str], text: str) -> Failure:
    return Failure("oom", text, "host_memory",
                   more={"event": "slurm_oom", "slurm_step": found["step"].rstrip("."),
                         "count": int(found["count"])})  # fmt: skip


_SRUN = re.compile(
    r"srun: error: (?P<host>[A-Za-z0-9][\w.-]{0,252}): tasks? (?P<task>[\d,-]{1,200}):"
    r" (?P<words>[^\n]{1,200})"
)
_EXIT_WORDS = re.compile(r"Exited with exit code (\d{1,3})")


def _task(found: re.Match[str], text: str) -> Failure:
    words, task = found["words"].strip(), found["task"]
    code, name = _EXIT_WORDS.match(words), signals.signal_of_words(words)
    if code is not None:
        failure = exited(int(code[1]), text)
    elif words.lower() == "out of memory":
        failure = Failure("oom", text, "host_memory")
    else:
        class_ = signals.signal_class(name) if name is not None else "unknown"
        failure = Failure(class_, text, "signal" if name is not None else "", more={"signal": name})
    failure.host = found["host"]
    failure.more |= {"event": "slurm_task", "task": int(task) if task.isdecimal() else task}
    return failure


_CANCELLED = re.compile(r"error: \*{3} (?:STEP|JOB) (?P<step>[\w.+]{1,40}) ON \S{1,253} CANCELLED")


def _cancelled(found: re.Match[str], text: str) -> Failure:
    """The node it names is only the step's first."""
    return Failure("cancelled", text, role="echo",
                   more={"event": "slurm_cancel", "slurm_step": found["step"]})  # fmt: skip


_SHELL = re.compile(
    r"line \d{1,7}: {1,8}(?P<pid>\d{1,10}) (?P<words>Killed|Terminated|Aborted|Bus error"
    r"|Segmentation fault)(?: +\(core dumped\))?"
)


def _shell(found: re.Match[str], text: str) -> Failure:
    name = signals.signal_of_words(found["words"])
    return Failure(signals.signal_class(name or ""), text, "signal",
                   more={"event": "exit", "signal": name, "pid": int(found["pid"])})  # fmt: skip


_NPU = re.compile(r"(?<!#)\berror code is (?P<code>\d{6})(?!\d|#)")
_NPU_LINE = re.compile(
    r"\[ERROR\] \S{10,30} \(PID:(?P<pid>\d{1,10}), Device:(?P<device>-?\d{1,5}),"
    r" RankID:(?P<rank>-?\d{1,7})\)"
    r" (?P<code>ERR\d{5})"
)


def _npu(found: re.Match[str], text: str) -> Failure:
    return Failure("npu", text, "device_error", more={"event": "npu", "code": int(found["code"])})


def _npu_line(found: re.Match[str], text: str) -> Failure:
    rank = int(found["rank"])
    return Failure("npu", text, rank=rank if rank >= 0 else None,
                   more={"event": "npu", "code": found["code"], "device": int(found["device"]),
                         "pid": int(found["pid"])})  # fmt: skip


_FATAL = re.compile(r"^\s{0,8}Fatal Python error: (?P<words>[\w ]{1,60})")


def _fatal(found: re.Match[str], text: str) -> Failure:
    name = signals.signal_of_words(found["words"])
    class_ = signals.signal_class(name) if name is not None else "unknown"
    return Failure(class_, text, "signal" if name is not None else "",
                   more={"event": "fatal", "signal": name})  # fmt: skip


_ALONE = re.compile(r"(?:rror|CUDA error|nexpected pos )")


def _alone(found: re.Match[str], text: str) -> Failure | None:
    """An error line without a traceback counts where its words can mean nothing else."""
    sign = sign_of(text)
    said = sign is not None and (sign.alone or text.lstrip().startswith(("ERROR", "[ERROR]")))
    if sign is None or not said or text.lstrip().startswith(("INFO", "[INFO]", "DEBUG")):
        return None
    return Failure(sign.class_, text, sign.detail, more={"event": "error_line"})


FORMS = (
    FailureForm("nccl-warn", "NCCL WARN", _WARN, _warned,
                "host-a:393849:395082 [0] transport/net_ib.cc:253 NCCL WARN NET/IB : mlx5_3:1 Got"
                " non-fatal async event: port error(10)", "NVIDIA/nvidia-resiliency-ext tests"),
    FailureForm("watchdog-timeout", "atchdog caught", _CAUGHT, _timed_out,
                "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580,"
                " OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran"
                " for 600060 milliseconds before timing out.", "hiyouga/LlamaFactory#7396"),
    FailureForm("watchdog-work", " work", _AT_WORK, _at_work,
                "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work:"
                " 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.",
                "hiyouga/LlamaFactory#7396"),
    FailureForm("watchdog-exception", "terminated with exception", _TERMINATED, _watchdog_died,
                "Process group watchdog thread terminated with exception: CUDA error: unspecified"
                " launch failure", "deepseek-ai/DeepSeek-MoE#47"),
    FailureForm("watchdog-teardown", "", _TEARDOWN, _teardown,
                "[Rank 3] To avoid data inconsistency, we are taking the entire process down.",
                "snowflakedb/ArcticTraining#219"),
    FailureForm("torch-elastic", "exitcode: ", _EXITED, _exit,
                "failed (exitcode: -9) local_rank: 5 (pid: 2630) of binary: /opt/conda/bin/python",
                "lzhxmu/CPPO#6"),
    FailureForm("slurm-oom", "oom", _OOM_KILL, _slurm_oom,
                "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup.",
                "hafs-community/HAFS#101"),
    FailureForm("slurm-task", "srun: error", _SRUN, _task,
                "srun: error: Orion-18-69: task 289: Bus error", "hafs-community/HAFS#101"),
    FailureForm("slurm-cancel", "CANCELLED", _CANCELLED, _cancelled,
                "slurmstepd: error: *** STEP 3495064.0 ON orion-01-01 CANCELLED AT"
                " 2021-10-27T19:35:36 ***", "hafs-community/HAFS#101"),
    FailureForm("shell", ": line ", _SHELL, _shell,
                "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed   python3 main.py",
                "ArjunaCluster/ArjunaUsers#52"),
    FailureForm("npu", "error code is", _NPU, _npu,
                "RuntimeWarning) error code is 507035",
                "intelligent-machine-learning/dlrover tests"),
    FailureForm("npu-rank", "RankID:", _NPU_LINE, _npu_line,
                "[ERROR] 2024-07-03-19:45:13 (PID:62743, Device:11, RankID:43) ERR02005 DIST"
                " internal error", "intelligent-machine-learning/dlrover tests"),
    FailureForm("fatal", "Fatal Python error", _FATAL, _fatal,
                "Fatal Python error: Aborted", "NVIDIA/nvidia-resiliency-ext tests"),
    FailureForm("error-line", "", _ALONE, _alone,
                "CUDA error encountered at: file=permute.cu, line=535, Reason=cudaErrorContained:"
                "Invalid access of peer GPU memory over nvlink or a hardware error",
                "NVIDIA/nvidia-resiliency-ext tests"),
)  # fmt: skip


def read_failure(text: str) -> Failure | None:
    """What one line, without its prefix, tells of a failure by itself."""
    for form in FORMS:
        if form.marker in text:
            found = form.regex.search(text[:TEXT_MAX])
            if found is not None:
                failure = form.make(found, text[:TEXT_MAX])
                if failure is not None:
                    return failure
    return None
