"""The inventory out of slurmrestd, over TCP, TLS or its unix socket, with a JWT."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from collectors.flat import Flat
from collectors.inventory.reservations import WITHOUT_RESERVATIONS, read_json
from collectors.inventory.slurm import allocation
from collectors.inventory.whole import whole
from collectors.slurm import read_objects
from telemetry.errors import InputError, SettingsError, SourceUnavailable
from telemetry.http_get import Answer, HttpGet
from telemetry.ports import Clock
from telemetry.records import Allocation, Maintenance
from telemetry.settings import SlurmrestdSettings

VERSIONS = tuple(f"v0.0.{number}" for number in range(45, 36, -1))
"""Newest first; the parsers know what these answer."""
TOKEN_MAX = 16_384
OK, NOT_FOUND, UNAUTHORIZED, FORBIDDEN = 200, 404, 401, 403
SAID_MAX = 200
KEY = "inventory.slurmrestd.url"

_log = logging.getLogger("nodewarden.inventory")


class SlurmRest:
    """An `InventorySource`. Raises SettingsError where the settings can reach no server."""

    def __init__(
        self, settings: SlurmrestdSettings, partitions: tuple[str, ...], clock: Clock,
        reservations: bool = True,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._partitions = partitions
        self._clock = clock
        self._reservations = reservations
        self._http = HttpGet(
            settings.url, KEY, settings.timeout_s, settings.answer_max_bytes, clock,
            settings.ca_file,
        )  # fmt: skip
        if settings.version and re.fullmatch(r"v0\.0\.\d{2}", settings.version) is None:
            raise SettingsError(
                f"inventory.slurmrestd.version: {settings.version!r}; it looks like v0.0.41"
            )
        self._version = settings.version

    def listing(self) -> Allocation:
        """Nodes first, jobs after.

        Raises SourceUnavailable, ListingIncomplete; InputError where the token cannot be read.
        """
        headers = self._headers()
        if not self._version:
            self._version = self._negotiated(headers)
            _log.info("slurmrestd_version version=%s", self._version)
        nodes, jobs = self._whole("nodes", headers), self._whole("jobs", headers)
        windows = self._maintenance(headers) if self._reservations else []
        return allocation(nodes, jobs, {}, self._partitions, self._clock.time_s(), windows)

    def _maintenance(self, headers: dict[str, str]) -> list[Maintenance]:
        path = f"/slurm/{self._version}/reservations"
        try:
            return read_json(self._body(path, headers), f"{self._http.url}{path}")
        except SourceUnavailable as error:
            raise type(error)(f"{error}{WITHOUT_RESERVATIONS}") from error

    def _negotiated(self, headers: dict[str, str]) -> str:
        """The newest version that the server answers to."""
        for version in VERSIONS:
            path = f"/slurm/{version}/ping"
            answer = self._http.get(path, headers)
            if answer.status == OK:
                return version
            if answer.status != NOT_FOUND:
                raise self._refused(path, answer)
        raise SourceUnavailable(
            f"{self._http.url}: speaks none of {VERSIONS[-1]} to {VERSIONS[0]}; start slurmrestd"
            " with one of them (-s), or check the URL"
        )

    def _whole(self, of: str, headers: dict[str, str]) -> list[Flat]:
        path = f"/slurm/{self._version}/{of}"
        body = self._body(path, headers)
        return whole(read_objects(path, [body]), of, f"{self._http.url}{path}")

    def _body(self, path: str, headers: dict[str, str]) -> bytes:
        answer = self._http.get(path, headers)
        if answer.status == NOT_FOUND and not self._settings.version:
            self._version = ""  # another slurmrestd: it is asked anew what it speaks
        if answer.status != OK:
            raise self._refused(path, answer)
        return answer.body

    def _refused(self, path: str, answer: Answer) -> SourceUnavailable:
        said = next(
            (one["reason"] for one in read_objects(path, [answer.body])
             if one["type"] == "rejected"), "",
        )  # fmt: skip
        if not said:
            said = " ".join(answer.body[:SAID_MAX].decode("utf-8", "replace").split())
        remedy = ""
        if answer.status in (UNAUTHORIZED, FORBIDDEN):
            remedy = "; check inventory.slurmrestd.token_file and user"
        return SourceUnavailable(
            f"{self._http.url}{path}: answers {answer.status}: {said[:SAID_MAX]}{remedy}"
        )

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "nodewarden"}
        if self._settings.user:
            headers["X-SLURM-USER-NAME"] = self._settings.user
        if self._settings.token_file:
            headers["X-SLURM-USER-TOKEN"] = _token(Path(self._settings.token_file))
        return headers


def _token(path: Path) -> str:
    """The JWT alone, or `SLURM_JWT=...` as `scontrol token` prints it."""
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_MAX + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; it holds slurmrestd's token") from error
    token = text.removeprefix("SLURM_JWT=")
    if not re.fullmatch(r"[A-Za-z0-9_\-.=]{1,16384}", token):
        raise InputError(f"{path}: holds no token; write into it what scontrol token prints")
    return token
