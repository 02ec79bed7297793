"""The commands' way to the action service: one request, one answer, errors in one line."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click
import msgspec

from actions.service import TEXT_MAX
from nodewarden.session import Session, config_option
from telemetry.actions import Verb
from telemetry.errors import InputError, SettingsError, SourceUnavailable
from telemetry.hostlist import expand
from telemetry.settings import ActSettings

TIMEOUT_S = 15.0
ANSWER_MAX_BYTES = 64_000_000
TARGETS_MAX = 1_000  # of one command
TOKEN_VARIABLE = "NODEWARDEN_ACT__TOKEN"  # noqa: S105 - its name

Command = TypeVar("Command", bound=Callable[..., object])


class ActClient:
    """Raises SettingsError where `act.url` or `act.token` is none, or the token is not taken,
    InputError where what was asked is refused, SourceUnavailable where nobody answers.
    """

    def __init__(self, settings: ActSettings) -> None:
        parts = urlsplit(settings.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"act.url: {settings.url!r}: expected http://HOST:PORT")
        if not settings.token:
            raise SettingsError(f"act.token: none is set; set {TOKEN_VARIABLE}")
        if not settings.token.isascii() or not settings.token.isprintable():
            raise SettingsError("act.token: holds characters that no token has")
        self._url, self._token = settings.url, settings.token
        make = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = make(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def get(self, path: str) -> dict[str, Any]:
        """The answer to GET /v1/`path`, as it is."""
        return self._asked("GET", path, None)

    def get_of(self, what: str, name: str) -> dict[str, Any]:
        """The same of one thing, by its name as a person wrote it."""
        return self.get(f"{what}/{quote(_named(name), safe='')}")

    def show(self, name: str) -> dict[str, Any]:
        """An incident or a decision, with all that was decided, asked and done about it."""
        return self.get_of("incidents", name)

    def post(self, verb: Verb, body: dict[str, object]) -> dict[str, Any]:
        """The answer to a request."""
        try:
            raw = msgspec.json.encode(body)
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is no UTF-8") from error
        return self._asked("POST", verb.replace("_", "-"), raw)

    def _asked(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            self._connection.request(method, f"/v1/{path}", body, headers)
            answer = self._connection.getresponse()
            raw, status = answer.read(ANSWER_MAX_BYTES), answer.status
        except (OSError, http.client.HTTPException) as error:
            why = f"{self._url}: the action service does not answer: {error}; is act running?"
            raise SourceUnavailable(why) from error
        finally:
            self._connection.close()
        return _checked(raw, status, self._url)


def _checked(raw: bytes, status: int, url: str) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceUnavailable(f"{url}: status {status}, and no answer of act's") from error
    said = str(body.get("error", f"status {status}"))
    if status == http.client.OK:
        return body
    if status == http.client.UNAUTHORIZED:
        raise SettingsError(f"act.token: {said}; set {TOKEN_VARIABLE}")
    if status >= http.client.INTERNAL_SERVER_ERROR:
        raise SourceUnavailable(f"{url}: {said}")
    raise InputError(said)


def asking(name: str, verb: Verb, argument: str, does: str, *, many: bool = False) -> click.Command:
    """A command that asks for one thing: `nodewarden NAME ARGUMENT [--note TEXT]`.

    argument  how the target is called in the help; "" where there is none
    many      the target may be a host list, "n[01-04],n7": each is asked for
    """

    @click.command(name, help=does)
    @config_option
    @note_option
    @click.pass_obj
    def command(session: Session, config: Path | None, note: str, target: str = "") -> None:
        for one in _targets(target) if many else [target]:
            ask(session, config, verb, {"target": one, "note": note})

    return click.argument("target", metavar=argument)(command) if argument else command


def _targets(text: str) -> list[str]:
    """The nodes of a host list. Raises InputError where it is none."""
    names = expand(text, TARGETS_MAX)
    if isinstance(names, str):
        raise InputError(f"not read: {names}; write at most {TARGETS_MAX} nodes as n[01-04],n7")
    if not names:
        raise InputError("no node is named")
    return names


def note_option(command: Command) -> Command:
    """`--note TEXT`, for the audit."""
    return click.option(
        "--note", default="", metavar="TEXT", help="Why; stands in the audit.", callback=_short
    )(command)


def _short(_context: click.Context, option: click.Parameter, text: str) -> str:
    if len(text) > TEXT_MAX:
        raise click.BadParameter(f"{len(text)} characters, at most {TEXT_MAX}", param=option)
    return text


def _named(name: str) -> str:
    """Raises InputError where it is none."""
    if not name.strip():
        raise InputError("the name is empty")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name!r} is no UTF-8") from error
    return name


def ask(session: Session, config: Path | None, verb: Verb, body: dict[str, object]) -> None:
    """Ask, and print what came of it in one line."""
    if "target" in body and verb not in ("pause", "resume"):
        _named(str(body["target"]))
    answer = ActClient(session.settings(config).configuration.act).post(verb, body)
    request = answer.get("request", {})
    decisions = answer.get("decisions", [])
    said = [
        f"{one['id']} {one['state']}: {one['reason']}"
        for one in [*decisions, *answer.get("updates", [])]
    ]
    plain = f"{verb.replace('_', '-')} {body.get('target', '')}".strip()
    notice = f"; {answer['notice']}" if answer.get("notice") else ""
    for line in said or [f"{plain}: {request.get('reason', 'taken')}"]:
        click.echo(line + notice)
    if answer.get("warning"):
        click.echo(f"warning: {answer['warning']}", err=True)
