"""slurmctld through slurmrestd: TCP, TLS or its unix socket, with a JWT.

It cannot do everything: no version requeues a job, and before v0.0.40 none changes a node. What it
lacks is refused, or done by commands, as the settings say.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from actions.executors import slurm_json
from actions.executors.slurm_port import (
    BEGIN_IN_S,
    GIVEN_BACK,
    JobChange,
    JobSeen,
    NodeSeen,
    SlurmController,
    checked_job,
    checked_nodes,
)
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.http_get import Answer, HttpGet
from telemetry.ports import Clock
from telemetry.settings import ActSlurmSettings

VERSIONS = tuple(f"v0.0.{number}" for number in range(45, 37, -1))
"""Newest first; `slurm_json` knows what these answer."""
KEY = "act.slurm.url"
TOKEN_MAX = 16_384
SAID_MAX = 200
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED = 200, 401, 403, 404, 405
_DISABLED = re.compile(r"Disabled key|Unknown key", re.I)
_NO_NODE = re.compile(r"Failure to query node|Invalid node name")
Method = Literal["GET", "POST", "DELETE"]

_log = logging.getLogger("nodewarden.act")


class SlurmRest:
    """A `SlurmController`; of one thread. Raises SettingsError where it can reach no server.

    left_s  how long the next request may take; raises SourceUnavailable where no time is left
    lacking does what slurmrestd cannot do; None: it is refused
    """

    def __init__(
        self, settings: ActSlurmSettings, clock: Clock, left_s: Callable[[], float],
        lacking: SlurmController | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._clock = settings, clock
        self._left_s, self._lacking = left_s, lacking
        self._http = HttpGet(
            settings.url, KEY, settings.timeout_s, settings.answer_max_bytes, clock,
            settings.ca_file, "act.slurm.ca_file",
        )  # fmt: skip
        if settings.version and settings.version not in VERSIONS:
            known = f"{VERSIONS[-1]} to {VERSIONS[0]}"
            raise SettingsError(f"act.slurm.version: {settings.version!r} is none of {known}")
        self._version = settings.version

    # -- what is

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeSeen]:
        """See the port. An absence is one only where a whole listing does not hold the name."""
        found: dict[str, NodeSeen] = {}
        for name in checked_nodes(names):
            node = self._node(name)
            if node is not None:
                found[name] = node
        return found

    def job(self, name: str) -> JobSeen | None:
        """See the port. slurmrestd finds a task of an array among all of the array."""
        asked, answer = self._asked("GET", f"job/{checked_job(name).partition('_')[0]}")
        if any(fault.is_no_such for fault in slurm_json.faults(answer.body)):
            return None
        if answer.status != OK:
            raise self._unclear(asked, answer)
        found = slurm_json.job(answer.body, asked, name)
        if found is None:
            raise SourceUnavailable(f"{asked}: the answer holds no job")
        return found

    def _node(self, name: str) -> NodeSeen | None:
        asked, answer = self._asked("GET", f"node/{name}")
        said = slurm_json.faults(answer.body)
        if any(fault.is_no_such or _NO_NODE.search(fault.text) for fault in said):
            return self._listed(name)
        if answer.status != OK:
            raise self._unclear(asked, answer)
        found = slurm_json.nodes(answer.body, asked)
        if name not in found:
            raise SourceUnavailable(f"{asked}: says nothing of {name}")
        return found[name]

    def _listed(self, name: str) -> NodeSeen | None:
        """Newer ones say the same of a node that is not there and of one that they cannot see."""
        asked, answer = self._asked("GET", "nodes")
        if answer.status != OK:
            raise self._unclear(asked, answer)
        found = slurm_json.nodes(answer.body, asked)
        if not found:
            raise SourceUnavailable(f"{asked}: no node in it: a cluster has nodes")
        return found.get(name)

    # -- changes

    def drain(self, names: Sequence[str], reason: str) -> str:
        """See the port."""
        return self._updated(names, {"state": ["DRAIN"], "reason": reason},
                             lambda other: other.drain(names, reason))  # fmt: skip

    def undrain(self, names: Sequence[str]) -> str:
        """See the port."""
        return self._updated(names, {"state": ["UNDRAIN"], "reason": GIVEN_BACK},
                             lambda other: other.undrain(names))  # fmt: skip

    def change(self, job: str, what: JobChange) -> str:
        """See the port."""
        checked_job(job)
        match what:
            case "cancel":
                return self._told("DELETE", f"job/{job}", None, lambda o: o.change(job, what))
            case "requeue_hold":
                return self._without("requeues no job", lambda other: other.change(job, what))
            case "release":
                body: dict[str, Any] = {"hold": False}
            case "begin_now":
                body = {"begin_time": self._now()}
        return self._of_job(job, body, lambda other: other.change(job, what))

    def _now(self) -> object:
        """As the version writes a time; it is known once anything was asked."""
        number = {"set": True, "infinite": False, "number": int(self._clock.time_s()) + BEGIN_IN_S}
        return f"now+{BEGIN_IN_S}" if self._version == "v0.0.38" else number

    def exclude(self, job: str, nodes: Collection[str]) -> str:
        """See the port."""
        # An empty list changes nothing; an empty text is nobody.
        body = {"excluded_nodes": sorted(checked_nodes(nodes)) or ""}
        return self._of_job(checked_job(job), body, lambda other: other.exclude(job, nodes))

    def _of_job(
        self, job: str, body: dict[str, Any], otherwise: Callable[[SlurmController], str]
    ) -> str:
        """An update of a job. Of a task it would be one of its whole array, or is rejected."""
        if "_" in job:
            return self._without("updates no single task of an array", otherwise)
        return self._told("POST", f"job/{job}", body, otherwise)

    def _updated(
        self, names: Sequence[str], body: dict[str, Any],
        otherwise: Callable[[SlurmController], str],
    ) -> str:  # fmt: skip
        """All of them, or until one is refused: whoever asked looks at each."""
        for name in checked_nodes(names):
            refusal = self._told("POST", f"node/{name}", body, otherwise)
            if refusal:
                return refusal
        return ""

    def _told(
        self, method: Method, path: str, body: dict[str, Any] | None,
        otherwise: Callable[[SlurmController], str],
    ) -> str:  # fmt: skip
        """A change: "" where it was taken, else why it certainly was not."""
        asked, answer = self._asked(method, path, body)
        said = slurm_json.faults(answer.body)
        text = "; ".join(fault.text for fault in said)[:SAID_MAX]
        if answer.status == NOT_ALLOWED or _DISABLED.search(text):
            return self._without(f"{self._version} does not change {path}", otherwise)
        if any(fault.is_no_such for fault in said):
            return text
        if answer.status in (UNAUTHORIZED, FORBIDDEN):
            return str(self._unclear(asked, answer))
        if answer.status != OK or said:
            raise self._unclear(asked, answer)
        return ""

    def _without(self, what: str, otherwise: Callable[[SlurmController], str]) -> str:
        if self._lacking is not None:
            return otherwise(self._lacking)
        return f'slurmrestd {what}; set act.slurm.rest_lacks = "commands"'

    # -- asking

    def _asked(
        self, method: Method, path: str, body: dict[str, Any] | None = None
    ) -> tuple[str, Answer]:  # fmt: skip
        """What was asked, in words, and the answer."""
        headers = self._headers()
        if not self._version:
            self._version = self._negotiated(headers)
            _log.info("slurmrestd_version version=%s", self._version)
        where = f"/slurm/{self._version}/{path}"
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        answer = self._http.ask(method, where, headers, data, self._left_s())
        if answer.status == NOT_FOUND and not slurm_json.faults(answer.body):
            self._version = self._settings.version  # another slurmrestd: asked anew what it speaks
        return f"{method} {self._http.url}{where}", answer

    def _negotiated(self, headers: dict[str, str]) -> str:
        """The newest version that the server answers to."""
        for version in VERSIONS:
            path = f"/slurm/{version}/ping"
            answer = self._http.ask("GET", path, headers, None, self._left_s())
            if answer.status == OK:
                return version
            if answer.status != NOT_FOUND:
                raise self._unclear(f"GET {self._http.url}{path}", answer)
        raise SourceUnavailable(
            f"{self._http.url}: speaks none of {VERSIONS[-1]} to {VERSIONS[0]}; start slurmrestd"
            " with one of them (-s), or check the URL"
        )

    def _unclear(self, asked: str, answer: Answer) -> SourceUnavailable:
        said = "; ".join(fault.text for fault in slurm_json.faults(answer.body)) or " ".join(
            answer.body[:SAID_MAX].decode("utf-8", "replace").split()
        )
        remedy = ""
        if answer.status in (UNAUTHORIZED, FORBIDDEN):
            remedy = "; check act.slurm.token_file and user"
        return SourceUnavailable(f"{asked}: answers {answer.status}: {said[:SAID_MAX]}{remedy}")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "nodewarden"}
        if self._settings.user:
            headers["X-SLURM-USER-NAME"] = self._settings.user
        if self._settings.token or self._settings.token_file:
            headers["X-SLURM-USER-TOKEN"] = self._token()
        return headers

    def _token(self) -> str:
        """As `scontrol token` prints it, or alone. Raises SourceUnavailable where it is none."""
        text, place = self._settings.token, "act.slurm.token"
        if self._settings.token_file:
            place = self._settings.token_file
            try:
                with Path(place).open("rb") as file:
                    text = file.read(TOKEN_MAX + 1).decode("ascii", "replace")
            except OSError as error:
                why = f"{place}: {error.strerror}; it holds slurmrestd's token"
                raise SourceUnavailable(why) from error
        token = text.strip().removeprefix("SLURM_JWT=")
        if not re.fullmatch(rf"[A-Za-z0-9_\-.=]{{1,{TOKEN_MAX}}}", token):
            raise SourceUnavailable(f"{place}: no token; as scontrol token prints it")
        return token
