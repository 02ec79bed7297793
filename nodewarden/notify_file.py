"""The notify file (TOML) and the secrets that it names. Read once, at the start.

It is a file of its own, as Alertmanager's is: a tree of routes fits into no environment variable,
and who may read the settings need not read the keys.
"""

from __future__ import annotations

import difflib
import logging
import math
import re
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from actions.notify.routing import Router
from actions.notify.settings import NotifySettings, ReceiverSettings
from nodewarden.settings_file import no_choice
from nodewarden.toml_file import read_toml
from telemetry.broker_security import readable_by_others
from telemetry.errors import SettingsError
from telemetry.settings import Section

SECRET_MAX_BYTES = 4_096
_log = logging.getLogger("nodewarden.settings")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.A)


def read_notify_file(file: Path, cluster: str) -> NotifySettings:
    """Checked as far as it can be without the secrets. Raises SettingsError, one line."""
    settings = parse_notify(read_toml(file, "notify file", "name the notify file"), str(file))
    _check_readers(settings, file)
    try:
        Router(settings, cluster)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error
    return settings


def parse_notify(raw: dict[str, Any], where: str) -> NotifySettings:
    """The settings out of TOML's tables. Raises SettingsError; values are never repeated in it."""
    settings: NotifySettings = _converted(raw, NotifySettings, where, "")
    for name, receiver in settings.receivers.items():
        if _NAME.fullmatch(name) is None:
            raise SettingsError(f"{where}: receivers: {name!r}: letters, digits, _ and - only")
        if receiver.url:
            _check_url(receiver.url, f"{where}: receivers.{name}.url", ("http", "https"))
    for name, link in settings.links.items():
        _check_url(link, f"{where}: links.{name}", ("http", "https"))
    if settings.image_url:  # PagerDuty shows no others
        _check_url(settings.image_url, f"{where}: image_url", ("https",))
    return settings


def with_secrets(settings: NotifySettings, where: str) -> NotifySettings:
    """The same, with each `*_file` read. Raises SettingsError."""
    receivers = {
        name: _with_secrets(receiver, f"{where}: receivers.{name}")
        for name, receiver in settings.receivers.items()
    }
    return msgspec.structs.replace(settings, receivers=receivers)


def _check_readers(settings: NotifySettings, file: Path) -> None:
    """Secrets in a file for everybody to read are refused; an Alertmanager's address is none."""
    if not readable_by_others(str(file)):
        return
    for name, receiver in settings.receivers.items():
        is_secret = {
            "routing_key": bool(receiver.routing_key),
            "token": bool(receiver.token),
            "url": bool(receiver.url) and receiver.kind == "webhook",
        }
        for key in (key for key, is_set in is_secret.items() if is_set):
            raise SettingsError(
                f"{file}: receivers.{name}.{key}: everybody can read that file; "
                f"chmod o-r {file}, or set {key}_file"
            )


def _with_secrets(receiver: ReceiverSettings, where: str) -> ReceiverSettings:
    found: dict[str, str] = {}
    for key in ("url", "routing_key", "token"):
        if file := getattr(receiver, f"{key}_file"):
            found[key] = _secret(Path(file), f"{where}.{key}_file")
            if readable_by_others(file):  # where Kubernetes puts secrets that is the usual mode
                _log.warning("%s.%s_file: everybody can read %s; chmod o-r it", where, key, file)
            found[f"{key}_file"] = ""
    if "url" in found:
        _check_url(found["url"], f"{where}.url_file", ("http", "https"))
    return msgspec.structs.replace(receiver, **found)


def _secret(file: Path, where: str) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(SECRET_MAX_BYTES + 1)
        text = data.decode("ascii").strip()
    except OSError as error:
        raise SettingsError(f"{where}: {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: {file}: no ASCII text") from error
    if not text or len(data) > SECRET_MAX_BYTES or not text.isprintable() or " " in text:
        raise SettingsError(f"{where}: {file}: expected one line without spaces")
    return text


def _check_url(url: str, where: str, schemes: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    usable = url.isascii() and url.isprintable() and " " not in url
    if not (named and usable) or parts.scheme not in schemes or "@" in parts.netloc:
        said = " or ".join(f"{scheme}://host/..." for scheme in schemes)
        raise SettingsError(f"{where}: no URL as {said}")


def _converted(raw: Any, kind: Any, file: str, path: str) -> Any:
    """`raw` as `kind`: tables key by key, so that an error names the key and shows no secret."""
    if isinstance(kind, type) and issubclass(kind, Section):
        return _section(raw, kind, file, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # only with None, which TOML has not
        return _converted(raw, arguments[0], file, path)
    inner = arguments[1] if origin is dict else arguments[0] if origin is tuple else None
    if not (isinstance(inner, type) and issubclass(inner, Section)):
        return _value(raw, kind, file, path)
    if origin is dict and isinstance(raw, dict):
        return {key: _converted(one, inner, file, f"{path}.{key}") for key, one in raw.items()}
    if origin is tuple and isinstance(raw, list):
        return tuple(_converted(one, inner, file, f"{path}[{n}]") for n, one in enumerate(raw))
    wanted = f"[{path}.NAME]" if origin is dict else f"[[{path}]]"
    raise SettingsError(f"{file}: {path}: expected tables {wanted}")


def _section(raw: Any, kind: type[Section], file: str, path: str) -> Section:
    if not isinstance(raw, dict):
        raise SettingsError(f"{file}: {path}: expected a table")
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values = {}
    for key, value in raw.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(fields)}"
            raise SettingsError(f"{file}: {_below(path, key)}: unknown key; {hint}")
        values[fields[key].name] = _converted(value, fields[key].type, file, _below(path, key))
    for field in fields.values():
        if field.required and field.name not in values:
            raise SettingsError(f"{file}: {_below(path, field.encode_name)}: is missing")
    return kind(**values)


def _value(raw: Any, kind: Any, file: str, path: str) -> Any:
    try:
        found = msgspec.convert(raw, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        said = no_choice(str(error), kind) or str(error).partition(" - at ")[0].replace("`", "")
        raise SettingsError(f"{file}: {path}: {said[:1].lower()}{said[1:]}") from None
    if isinstance(found, float) and not math.isfinite(found):
        raise SettingsError(f"{file}: {path}: expected a finite number")
    return found


def _below(path: str, key: str) -> str:
    shown = key if key.isprintable() else repr(key)
    return f"{path}.{shown}" if path else shown
