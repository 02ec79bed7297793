"""`nodewarden routes test` and `routes show`: who would be told, before it is three at night."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from actions.notify.matchers import all_match, parse_matchers
from actions.notify.routing import SEVERITIES, Delivery, Router
from actions.notify.settings import NotifySettings, RouteSettings
from nodewarden.commands.replay import json_text
from nodewarden.notify_file import read_notify_file
from nodewarden.session import Session, config_option
from telemetry.errors import InputError, SettingsError
from telemetry.findings import Incident
from telemetry.settings import Configuration

INCIDENT_MAX_BYTES = 4 * 1024 * 1024


@click.group("routes")
def command() -> None:
    """Who is told of which incident."""


@command.command()
@click.argument("labels", nargs=-1, metavar="[LABEL=VALUE]...")
@click.option(
    "--incident", "incident_file", type=click.Path(path_type=Path, allow_dash=True), metavar="F",
    help="An incident as `nodewarden incidents --json` prints it; - reads standard input.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@config_option
@click.pass_obj
def test(
    session: Session, labels: tuple[str, ...], incident_file: Path | None, as_json: bool,
    config: Path | None,
) -> None:  # fmt: skip
    """Show which route an incident with these labels takes, and who is told."""
    configuration = session.settings(config).configuration
    settings = _settings(configuration)
    router = Router(settings, configuration.engine.cluster)
    given = _pairs(labels)
    if incident_file is not None:
        found = {**router.labels(_incident(incident_file), None), **given}
    elif given:
        found = given
    else:
        raise SettingsError("routes test: give labels, as severity=critical, or --incident F")
    severity = found.get("severity")
    if severity is not None and severity not in SEVERITIES:
        raise SettingsError(f"severity={severity}: expected {', '.join(SEVERITIES)}")
    complete = router.completed({"cluster": configuration.engine.cluster, **found})
    deliveries = router.deliveries(complete)
    if as_json:
        told = [_object(settings, one) for one in deliveries]
        sys.stdout.write(json_text({"labels": complete, "receivers": told}))
    else:
        _print(settings, complete, deliveries)


@command.command()
@config_option
@click.pass_obj
def show(session: Session, config: Path | None) -> None:
    """Print the routing tree."""
    _tree(_settings(session.settings(config).configuration).route, 0)


def _settings(configuration: Configuration) -> NotifySettings:
    if not configuration.notify.file:
        raise SettingsError("notify.file: no notify file is named, nobody is told of anything")
    return read_notify_file(Path(configuration.notify.file), configuration.engine.cluster)


def _pairs(labels: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in labels:
        name, is_pair, value = text.partition("=")
        if not is_pair or not (name.isascii() and name.isidentifier()):
            raise SettingsError(f"{text}: expected LABEL=VALUE, as severity=critical")
        found[name] = value
    return found


def _incident(file: Path) -> Incident:
    """A record of the topic, or an object of `incidents --json`, which leaves some fields out."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(INCIDENT_MAX_BYTES + 1)
        else:
            with file.open("rb") as stream:
                data = stream.read(INCIDENT_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; name an incident's file") from error
    if len(data) > INCIDENT_MAX_BYTES:
        raise InputError(f"{file}: over 4 MB, this is no incident")
    try:
        raw = msgspec.json.decode(data)
        if isinstance(raw, dict) and isinstance(raw.get("incidents"), list):
            raw = _the_one(raw["incidents"], file)
        if isinstance(raw, dict):
            raw = {"rev": 0, "scope": _scope(raw), "verdicts": [], **raw}
        return msgspec.convert(raw, Incident, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file}: no incident: {error}") from error


def _the_one(incidents: list[Any], file: Path) -> Any:
    if len(incidents) != 1:
        raise InputError(f"{file}: holds {len(incidents)} incidents; give one of them")
    return incidents[0]


def _scope(raw: dict[str, Any]) -> str:
    suspects = raw.get("suspects")
    nodes = {s.get("node") for s in suspects if isinstance(s, dict)} if suspects else set()
    if len(nodes) == 1:
        return f"node:{nodes.pop()}"
    return f"job:{raw['job']}" if raw.get("job") else "cluster"


def _object(settings: NotifySettings, one: Delivery) -> dict[str, Any]:
    receiver = settings.receivers[one.receiver]
    return {
        "receiver": one.receiver, "kind": receiver.kind, "path": list(one.path),
        "group": one.group, "key": one.key, "group_wait_s": one.timing.wait_s,
        "group_interval_s": one.timing.interval_s, "repeat_interval_s": one.timing.repeat_s,
        "keep_open_s": one.timing.keep_open_s, "fallback": receiver.fallback,
    }  # fmt: skip


def _print(
    settings: NotifySettings, labels: dict[str, str], deliveries: list[Delivery]
) -> None:  # fmt: skip
    click.echo("labels: " + " ".join(f"{name}={labels[name]}" for name in sorted(labels)))
    for rule in settings.inhibit:
        if all_match(parse_matchers(rule.target_matchers, "inhibit"), labels):
            equal = f" with the same {', '.join(rule.equal)}" if rule.equal else ""
            click.echo(f"not told while open: {{{', '.join(rule.source_matchers)}}}{equal}")
    if not deliveries:
        click.echo("nobody is told: the route that takes it has no receiver")
    for one in deliveries:
        receiver = settings.receivers[one.receiver]
        click.echo(f"{one.receiver} ({receiver.kind})")
        click.echo(f"  way: {' > '.join(one.path)}")
        click.echo(f"  key: {one.key}")
        timing = one.timing
        click.echo(
            f"  waits {timing.wait_s:g} s, news after {timing.interval_s:g} s, "
            f"said again after {timing.repeat_s:g} s, resolved after {timing.keep_open_s:g} s"
        )
        if receiver.fallback:
            click.echo(f"  after {receiver.fallback_after} failed calls also: {receiver.fallback}")


def _tree(route: RouteSettings, depth: int) -> None:
    matchers = f"{{{', '.join(route.matchers)}}}" if route.matchers else "everything"
    receiver = f" -> {route.receiver}" if route.receiver else ""
    goes_on = ", continue" if route.continue_ else ""
    click.echo(f"{'  ' * depth}{matchers}{receiver}{goes_on}")
    for child in route.routes:
        _tree(child, depth + 1)
