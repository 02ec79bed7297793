"""slurmctld through `scontrol` and `scancel`: argument lists, a time-out, a bound on what is read.

Never a shell. An exit status other than 0 is a certain "no" only where its words are known to be
one; whatever else went wrong is unknown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from actions.executors import slurm_json, slurm_text
from actions.executors.slurm_port import (
    BEGIN_IN_S,
    GIVEN_BACK,
    JobChange,
    JobSeen,
    NodeSeen,
    checked_job,
    checked_nodes,
)
from telemetry.errors import SourceUnavailable
from telemetry.ports import Clock
from telemetry.settings import ActSlurmSettings
from telemetry.slurm_words import job_state
from telemetry.tools import ENVIRONMENT, Ran, Tools

SAID_MAX = 200
NO_SUCH_JOB = re.compile(r"Invalid job id specified|Job \S{1,40} not found")
_NO_JSON = re.compile(r"unrecognized option|invalid option|serializer|JSON|data_parser", re.I)
_NO_SUCH_NODE = re.compile(r"Node (\S{1,253}) not found")
# Slurm's words for what it certainly did not do.
REFUSED = re.compile(
    r"Invalid node name specified|Invalid node state specified|Invalid job id specified"
    r"|Access/permission denied|Invalid user id|Requested operation is presently disabled"
    r"|Requested operation not supported|Job/step already completing or completed"
    r"|Job is no longer pending execution|Job is not pending"
)

_log = logging.getLogger("nodewarden.act")


class SlurmCommands:
    """A `SlurmController`; of one thread.

    left_s  how long the next command may take; raises SourceUnavailable where no time is left
    """

    def __init__(
        self, settings: ActSlurmSettings, clock: Clock, left_s: Callable[[], float]
    ) -> None:
        # Slurm prints times in the time zone of whoever asks.
        environment = {**ENVIRONMENT, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        if settings.conf:
            environment["SLURM_CONF"] = settings.conf
        self._tools = Tools(clock, environment, settings.answer_max_bytes)
        self._settings, self._left_s = settings, left_s
        self._is_json = settings.output != "text"

    # -- what is

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeSeen]:
        """See the port. An absence is one only where the text form says "not found" of it."""
        if not names:
            return {}
        wanted = checked_nodes(names)
        found = self._nodes_json(wanted) if self._is_json else None
        if found is None or set(wanted) - set(found):
            found = self._nodes_text(wanted)
        return {name: found[name] for name in wanted if name in found}

    def job(self, name: str) -> JobSeen | None:
        """See the port."""
        checked_job(name)
        if self._is_json:
            words = [self._settings.scontrol, "show", "job", name, "--json"]
            done = self._asked(words)
            if done is not None and done.status == 0:
                found = slurm_json.job(done.printed, " ".join(words), name)
                if found is not None:
                    return found
        return self._job_text(name) or self._accounted(name)

    def _nodes_json(self, names: Sequence[str]) -> dict[str, NodeSeen] | None:
        words = [self._settings.scontrol, "show", "node", ",".join(names), "--json"]
        done = self._asked(words)
        if done is None or done.status != 0:
            return None
        return slurm_json.nodes(done.printed, " ".join(words))

    def _nodes_text(self, names: Sequence[str]) -> dict[str, NodeSeen]:
        words = [self._settings.scontrol, "show", "node", ",".join(names)]
        done = self._ran(words)
        text = done.printed.decode("utf-8", "replace")
        absent = set(_NO_SUCH_NODE.findall(text + done.said))
        if done.status != 0 and not absent:
            raise self._unclear(words, done)
        found = slurm_text.nodes(text, " ".join(words))
        missing = set(names) - set(found) - absent
        if missing:
            raise SourceUnavailable(f"{' '.join(words)}: says nothing of {min(missing)}")
        return found

    def _job_text(self, name: str) -> JobSeen | None:
        words = [self._settings.scontrol, "show", "job", name]
        done = self._ran(words)
        text = done.printed.decode("utf-8", "replace")
        if done.status != 0:
            if NO_SUCH_JOB.search(text[:SAID_MAX] + done.said):
                return None
            raise self._unclear(words, done)
        found = slurm_text.job(text, " ".join(words), name)
        if found is None:
            raise SourceUnavailable(f"{' '.join(words)}: prints no job")
        return found

    def _accounted(self, name: str) -> JobSeen | None:
        """How a job ended that slurmctld has forgotten; None where accounting does not say it."""
        if not self._settings.sacct:
            return None
        done = self._ran([
            self._settings.sacct, "--noheader", "--parsable2", "--allocations", f"--jobs={name}",
            "--format=State",
        ])  # fmt: skip
        lines = done.printed.decode("utf-8", "replace").split("\n")[:-1]
        if done.status != 0 or not lines:
            return None
        state = job_state([lines[-1]])  # of several runs the last
        return JobSeen(id=name, state=state) if state.ended else None

    def _asked(self, words: Sequence[str]) -> Ran | None:
        """None where this Slurm has no JSON: it is not asked again."""
        done = self._ran(words)
        if done.status != 0 and _NO_JSON.search(done.said):
            if self._settings.output == "json":
                raise self._unclear(words, done)
            _log.info("slurm_without_json error=%s: reading text", _line(done.said))
            self._is_json = False
            return None
        return done

    # -- changes

    def drain(self, names: Sequence[str], reason: str) -> str:
        """See the port."""
        targets = ",".join(checked_nodes(names))
        return self._changed(["update", f"nodename={targets}", "state=drain", f"reason={reason}"])

    def undrain(self, names: Sequence[str]) -> str:
        """See the port."""
        targets = ",".join(checked_nodes(names))
        return self._changed(
            ["update", f"nodename={targets}", "state=undrain", f"reason={GIVEN_BACK}"]
        )

    def change(self, job: str, what: JobChange) -> str:
        """See the port."""
        checked_job(job)
        match what:
            case "cancel":
                return self._answer([self._settings.scancel, job])
            case "requeue_hold":
                return self._changed(["requeuehold", job])
            case "release":
                return self._changed(["release", job])
            case "begin_now":
                return self._changed(["update", f"jobid={job}", f"starttime=now+{BEGIN_IN_S}"])

    def exclude(self, job: str, nodes: Collection[str]) -> str:
        """See the port."""
        names = ",".join(sorted(checked_nodes(nodes)))
        return self._changed(["update", f"jobid={checked_job(job)}", f"excnodelist={names}"])

    def _changed(self, words: Sequence[str]) -> str:
        return self._answer([self._settings.scontrol, *words])

    def _answer(self, words: Sequence[str]) -> str:
        done = self._ran(words)
        if done.status == 0:
            return ""
        said = _line(done.said) or _line(done.printed.decode("utf-8", "replace"))
        if REFUSED.search(said):
            return said
        raise self._unclear(words, done)

    def _ran(self, words: Sequence[str]) -> Ran:
        return self._tools.ran(words, self._left_s())

    @staticmethod
    def _unclear(words: Sequence[str], done: Ran) -> SourceUnavailable:
        said = _line(done.said) or f"ends with status {done.status}"
        return SourceUnavailable(f"{' '.join(words)[:SAID_MAX]}: {said}")


def _line(text: str) -> str:
    return " ".join(text.split())[:SAID_MAX]
