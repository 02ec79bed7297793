"""The settings file and the environment -> one `Configuration`. Read once, at the start.

One TOML file; every key also as NODEWARDEN_<PATH>, upper case, two underscores between levels:
NODEWARDEN_ENGINE__ZSCORE__WINDOW_S=300. The environment wins over the file, the file over the
defaults. A key that nobody knows stops the start, and so does a value that cannot be meant.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import msgspec

from nodewarden.settings_checks import check_together
from nodewarden.toml_file import read_toml
from telemetry.errors import SettingsError
from telemetry.settings import Configuration, Section

PREFIX = "NODEWARDEN_"
CONFIG_VARIABLE = "NODEWARDEN_CONFIG"
TRACE_VARIABLE = "NODEWARDEN_TRACE"

_NO_KEYS = frozenset({
    CONFIG_VARIABLE, TRACE_VARIABLE,
    # What processes of a job find in their environment, and commands that are run beside them.
    "NODEWARDEN_LAUNCH_DIR", "NODEWARDEN_JOB", "NODEWARDEN_GENERATION", "NODEWARDEN_NODES",
    "NODEWARDEN_CODE_VERSION", "NODEWARDEN_CONFIG_VERSION", "NODEWARDEN_RANK_OF",
    "NODEWARDEN_KEEP", "NODEWARDEN_MPIRUN", "NODEWARDEN_STEP_SOCKET", "NODEWARDEN_JOBS_DIR",
})  # fmt: skip
# What Kubernetes puts into every container beside a Service called nodewarden or nodewarden-x.
_SERVICE_LINK = re.compile(r"_(SERVICE_(HOST|PORT)\w*|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")
_NO_CHOICE = "Invalid enum value "  # as msgspec says it, and the next one too
_NO_MATCH = "matching regex"

Path_ = tuple[str, ...]


class Effective(msgspec.Struct, frozen=True):
    """A configuration, and for each key that is no default where it was set."""

    configuration: Configuration
    origins: dict[str, str]


def load(file: Path | None, environ: Mapping[str, str]) -> Effective:
    """Defaults, then `file`, then `environ`. Raises SettingsError with one line."""
    values: dict[Path_, object] = {}
    origins: dict[str, str] = {}
    if file is not None:
        raw = read_toml(file, "settings file", "name a settings file that is there")
        for path, value in _file_values(raw, Configuration, (), str(file)):
            values[path] = value
            origins[".".join(path)] = str(file)
    for path, value, variable in _environment_values(environ):
        values[path] = _merged(values.get(path), value)
        origins[".".join(path)] = variable
    configuration = msgspec.convert(_nested(values), Configuration)
    check_together(configuration, origins, file)
    return Effective(configuration, origins)


def show(effective: Effective) -> str:
    """All effective values as TOML that `load` reads back; what is no default says whence."""
    return "\n".join(_table(effective.configuration, (), effective.origins)).strip() + "\n"


def variable_of(path: Path_) -> str:
    """The environment variable of a key."""
    return PREFIX + "__".join(part.upper() for part in path)


def leaves(section: type[Section], above: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every key below `section` with its type, in the order of the file."""
    for field in msgspec.structs.fields(section):
        path = (*above, field.name)
        if _is_section(field.type):
            yield from leaves(field.type, path)
        else:
            yield path, field.type


def _file_values(
    raw: Mapping[str, object], section: type[Section], above: Path_, where: str
) -> Iterator[tuple[Path_, object]]:
    types = {field.name: field.type for field in msgspec.structs.fields(section)}
    for key, value in raw.items():
        path = (*above, key)
        if key not in types:
            raise SettingsError(f"{where}: {_dotted(path)}: unknown key{_hint(path, types)}")
        if not _is_section(types[key]):
            yield path, _converted(value, types[key], f"{where}: {_dotted(path)}", strict=True)
        elif isinstance(value, dict):
            yield from _file_values(value, types[key], path, where)
        else:
            raise SettingsError(f"{where}: {_dotted(path)}: expected a table [{_dotted(path)}]")


def _environment_values(environ: Mapping[str, str]) -> Iterator[tuple[Path_, object, str]]:
    known = {variable_of(path): (path, kind) for path, kind in leaves(Configuration)}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in _NO_KEYS:
            continue
        text = environ[variable]
        if variable in known:
            path, kind = known[variable]
            yield path, _from_text(text, kind, variable), variable
            continue
        table, _, entry = variable.rpartition("__")
        if table in known and _is_table(known[table][1]):
            path, kind = known[table]
            entry_value = {entry.lower(): text}
            yield path, _converted(entry_value, kind, variable, strict=False), variable
        elif not _SERVICE_LINK.search(variable):
            raise SettingsError(f"{variable}: unknown key{_nearest(variable, known)}")


def _from_text(text: str, kind: Any, where: str) -> object:
    if kind is str or (_is_secret(kind) and not _is_table(kind)):
        return text
    if text[:1] in ("[", "{"):
        try:
            return _converted(tomllib.loads(f"value = {text}")["value"], kind, where, strict=True)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SettingsError(f"{where}: no TOML: {error}") from error
    if _is_list(kind):
        parts = [part.strip() for part in text.split(",")] if text.strip() else []
        return _converted(parts, kind, where, strict=True)
    return _converted(text, kind, where, strict=False)


def _converted(value: object, kind: Any, where: str, *, strict: bool) -> object:
    try:
        found = msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, OverflowError) as error:
        if _is_secret(kind):
            raise SettingsError(f"{where}: expected {_wanted(kind)}") from None
        raise SettingsError(f"{where}: {_said(str(error), value, kind)}") from error
    if any(not math.isfinite(number) for number in _floats(found)):
        raise SettingsError(f"{where}: expected a finite number instead of {_shortened(value)}")
    return found


def _said(error: str, value: object, kind: Any) -> str:
    """What is wrong with the value, in one line, from what msgspec says of it."""
    if choice := no_choice(error, kind):
        return choice
    said = error.partition(", got ")[0].partition(" - at ")[0].replace("`", "")
    if _NO_MATCH in said:
        said = f"expected {_wanted(kind)}"
    return f"{said[:1].lower()}{said[1:]} instead of {_shortened(value)}"


def no_choice(error: str, kind: object) -> str:
    """The words that the value may be, where msgspec says that it is none of them; else ""."""
    if not error.startswith(_NO_CHOICE):
        return ""
    wrong = error.removeprefix(_NO_CHOICE).partition(" - at ")[0]
    return f"{wrong} is none of {', '.join(_choices(kind))}"


def _choices(kind: object) -> Iterator[str]:
    """The words that a setting may be, also where they are within a list or a table."""
    for inner in get_args(kind):
        if isinstance(inner, str):
            yield inner or '""'
        else:
            yield from _choices(inner)


def _table(section: Section, above: Path_, origins: Mapping[str, str]) -> Iterator[str]:
    inner: list[tuple[Path_, Section]] = []
    if above:
        yield f"\n[{_dotted(above)}]"
    for name in section.__struct_fields__:
        value, path = getattr(section, name), (*above, name)
        if isinstance(value, Section):
            inner.append((path, value))
            continue
        origin = origins.get(_dotted(path))
        if value and name in _secrets(type(section)):
            yield f"# {name} is set and not shown" + (f"  # {_comment(origin)}" if origin else "")
            continue
        yield f"{name} = {_toml(value)}" + (f"  # {_comment(origin)}" if origin else "")
    for path, value in inner:
        yield from _table(value, path, origins)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        pairs = [f"{_toml(str(key))} = {_toml(value[key])}" for key in sorted(value)]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    assert isinstance(value, list | tuple), value
    return f"[{', '.join(_toml(item) for item in value)}]"


def _nested(values: Mapping[Path_, object]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value in values.items():
        at = root
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    return root


def _merged(below: object, above: object) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **above}
    return above


def _hint(path: Path_, types: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(path[-1], types, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    elsewhere = [_dotted(leaf) for leaf, _ in leaves(Configuration) if leaf[-1] == path[-1]]
    return f"; did you mean {elsewhere[0]}?" if elsewhere else f"; known: {', '.join(types)}"


def _nearest(variable: str, known: Mapping[str, object]) -> str:
    bare = [name.removeprefix(PREFIX) for name in known]
    near = difflib.get_close_matches(variable.removeprefix(PREFIX), bare, n=1)
    return f"; did you mean {PREFIX}{near[0]}?" if near else "; see `nodewarden config show`"


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _floats(inner)


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _is_secret(kind: object) -> bool:
    """Whether values of the type, or of the table, are never shown."""
    return any((meta.extra or {}).get("secret") is True for meta in _metas(kind))


def _wanted(kind: object) -> str:
    """What a secret, or a text that follows a pattern, has to be."""
    said = [(meta.extra or {}).get("wanted") for meta in _metas(kind)]
    return next((str(one) for one in said if one), "text in quotes")


def _metas(kind: object) -> list[msgspec.Meta]:
    if _is_table(kind) or _is_list(kind):
        within = [inner for inner in get_args(kind) if inner is not Ellipsis]
        kind = within[-1] if within else None
    metas: tuple[object, ...] = getattr(kind, "__metadata__", ())
    return [meta for meta in metas if isinstance(meta, msgspec.Meta)]


@lru_cache(maxsize=128)
def _secrets(section: type[Section]) -> frozenset[str]:
    return frozenset(
        {field.name for field in msgspec.structs.fields(section) if _is_secret(field.type)}
    )


def _is_table(kind: object) -> bool:
    return getattr(kind, "__origin__", None) is dict


def _is_list(kind: object) -> bool:
    return getattr(kind, "__origin__", None) in (list, tuple)


def _dotted(path: Path_) -> str:
    return ".".join(part if part.isprintable() else repr(part) for part in path)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _comment(text: str) -> str:
    return text if text.isprintable() else repr(text)
