"""The HTTP API of the action service: who asks is looked up here, what follows decided elsewhere.

    GET  /v1/incidents, /v1/incidents/ID, /v1/decisions, /v1/recoveries,
         /v1/versions/JOB
    POST /v1/VERB  {"target": "...", "note": "...", "for_s": 3600}

`Authorization: Bearer TOKEN` always. 400 no such request, 401 nobody's token, 403 the role is not
enough, 404 no such thing, 409 not as things stand, 413 too large, 503 a standby, 504 no answer yet.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from actions.access import NEEDS, Access, Person, may
from actions.desk import Desk, Reply
from actions.metrics import ActMetrics
from actions.service import TEXT_MAX, Asked
from telemetry.actions import Verb
from telemetry.addresses import host_port
from telemetry.attempts import Attempt
from telemetry.errors import SettingsError
from telemetry.settings import ActSettings

ANSWER_S = 10.0
TARGET_MAX = 253
LOGGED_PER_MINUTE = 60  # refusals that no audit has; all are counted
FOR_MAX_S = 30 * 86_400.0
VERBS: tuple[Verb, ...] = (
    "approve", "deny", "ack", "snooze", "pause", "resume", "isolate", "release", "false_alarm",
    "tried", "update", "rollback",
)  # fmt: skip
_NO_TARGET: frozenset[Verb] = frozenset({"pause", "resume"})


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a POST; `for_s` is how long a snooze lasts, `attempt` is what was tried; `versions` of an
    update, which is `urgent`, or `running` already.
    """

    target: Annotated[str, Meta(max_length=TARGET_MAX)] = ""
    note: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    for_s: Annotated[float, Meta(gt=0.0, le=FOR_MAX_S)] | None = None
    attempt: Attempt | None = None
    versions: Annotated[dict[str, Annotated[str, Meta(max_length=TARGET_MAX)]],
                        Meta(max_length=4)] = {}  # fmt: skip
    urgent: bool = False
    running: bool = False


_log = logging.getLogger("nodewarden.act")
_BODY = msgspec.json.Decoder(Body)
Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


class Api:
    """Serves in a thread of its own while used as a context manager.

    time_s  Unix seconds, for the end of a snooze
    """

    def __init__(
        self, settings: ActSettings, desk: Desk, time_s: Callable[[], float], metrics: ActMetrics
    ) -> None:
        self._settings, self._desk, self._time_s = settings, desk, time_s
        self._metrics = metrics
        self._logged_s: deque[float] = deque(maxlen=LOGGED_PER_MINUTE)
        self._access = Access(settings.tokens)
        self._loop: asyncio.AbstractEventLoop
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)

    def __enter__(self) -> Api:
        """Raises SettingsError where the address cannot be served."""
        address = self._settings.address
        place = host_port(address)
        if place is None:
            raise SettingsError(f"act.address: {address!r}: expected HOST:PORT, as 127.0.0.1:9120")
        if not _is_loopback(place[0]):
            _log.warning(
                "api_in_clear address=%s: tokens travel in clear; put TLS before it", address
            )
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            self._do(self._start(*place))
        except OSError as error:
            self.__exit__()
            raise SettingsError(f"act.address: {address}: {error.strerror or error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        if self._runner is not None:
            self._do(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self, host: str, port: int) -> None:
        application = web.Application(client_max_size=self._settings.body_max_bytes)
        application.router.add_get("/v1/incidents", self._reading("incidents"))
        application.router.add_get("/v1/incidents/{id}", self._reading("incidents"))
        application.router.add_get("/v1/versions/{id}", self._reading("versions"))
        application.router.add_get("/v1/decisions", self._reading("decisions"))
        application.router.add_get("/v1/recoveries", self._reading("recoveries"))
        for verb in VERBS:
            application.router.add_post(f"/v1/{verb.replace('_', '-')}", self._doing(verb))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    def _reading(self, what: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            name = request.match_info.get("id", "")
            target = f"{what}/{name}" if name else what
            return await self._asked(request, "read", Body(target=target[:TARGET_MAX]))

        return handle

    def _doing(self, verb: Verb) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._access.who(request.headers.get("Authorization")) is None:
                return await self._asked(request, verb, Body())  # not a byte of theirs is read
            try:
                raw = await request.read()
            except web.HTTPRequestEntityTooLarge:
                at_most = self._settings.body_max_bytes
                return _answer(Reply(413, {"error": f"at most {at_most} bytes"}))
            try:
                body = _BODY.decode(raw or b"{}")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                return _answer(Reply(400, {"error": f"the body: {error}"}))
            if not body.target and verb not in _NO_TARGET:
                return _answer(Reply(400, {"error": "the body names no target"}))
            return await self._asked(request, verb, body)

        return handle

    async def _asked(self, request: web.Request, verb: Verb, body: Body) -> web.Response:
        person = self._access.who(request.headers.get("Authorization"))
        problem, status = _problem(person, verb)
        asked = Asked(
            verb=verb, target=body.target, person=person, note=body.note, problem=problem,
            attempt=body.attempt, versions=body.versions, urgent=body.urgent,
            running=body.running,
            until=None if body.for_s is None else self._time_s() + body.for_s,
        )  # fmt: skip
        waiting = asyncio.wrap_future(self._desk.ask(asked, status))
        try:
            reply = await asyncio.wait_for(waiting, ANSWER_S)
        except TimeoutError:
            why = "no answer yet; look before you ask again"
            reply = Reply(504, {"error": why})
        # Who is refused is refused by a standby too, which cannot write that into the log.
        if status and reply.status == 503:
            self._unaudited(verb, person, problem, status)
            reply = Reply(status, {"error": problem})
        return _answer(reply)

    def _unaudited(self, verb: Verb, person: Person | None, problem: str, status: int) -> None:
        """Count it, and say it unless that happens all the time."""
        if self._desk.open:  # more wait than it takes
            self._metrics.unaudited.inc()
        else:
            self._metrics.standby_refusals.labels(verb, str(status)).inc()
        now_s = time.monotonic()
        if len(self._logged_s) < LOGGED_PER_MINUTE or now_s - self._logged_s[0] >= 60.0:
            self._logged_s.append(now_s)
            by = "nobody" if person is None else person.name
            _log.warning("refused_unaudited verb=%s by=%s status=%d %s", verb, by, status, problem)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _problem(person: Person | None, verb: Verb) -> tuple[str, int]:
    if person is None:
        return "no valid token", 401
    if not may(person, verb):
        return f"{person.name} is {person.role}: {verb} needs {NEEDS[verb]}", 403
    return "", 0


def _answer(reply: Reply) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if reply.status == 401 else None
    return web.Response(
        status=reply.status, body=msgspec.json.encode(reply.body), headers=headers,
        content_type="application/json",
    )  # fmt: skip
