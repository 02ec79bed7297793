"""Values that each can be meant, and not together; and secrets that everybody can read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nodewarden.executor_checks import wrong_together
from nodewarden.place_checks import wrong_places
from nodewarden.rail_checks import wrong_rails
from telemetry.broker_security import KEY as SECURITY
from telemetry.broker_security import readable_by_others, uses_login
from telemetry.errors import SettingsError
from telemetry.settings import Configuration, KafkaSettings, SecuritySettings
from telemetry.topics import TOPICS

_log = logging.getLogger("nodewarden.settings")


def check_together(
    configuration: Configuration, origins: Mapping[str, str], file: Path | None
) -> None:
    """Raises SettingsError, one line that says where the value was set.

    origins  of each key that is no default: the file or the variable
    file     the settings file
    """
    _check_shards(configuration, origins)
    _check_kafka(configuration.kafka, origins)
    _check_readers(configuration.kafka.security, file, origins)
    act = configuration.act
    for key, why in (*wrong_places(configuration), *wrong_together(act), *wrong_rails(act)):
        raise _Refused(origins, key, why)
    token_file = act.slurm.token_file
    if token_file and readable_by_others(token_file):
        _log.warning("act.slurm.token_file: everybody can read %s; chmod o-r it", token_file)


def _check_shards(configuration: Configuration, origins: Mapping[str, str]) -> None:
    shards, shard = configuration.shards, configuration.engine.shard
    if len(set(shards)) != len(shards) or "" in shards:
        raise _Refused(origins, "shards", f"names must differ and not be empty: {list(shards)}")
    if shard not in shards:
        raise _Refused(origins, "engine.shard", f"{shard!r} is not among shards {list(shards)}")
    for history in configuration.history_shards:
        if history not in shards:
            why = f"{history!r} is not among shards {list(shards)}"
            raise _Refused(origins, "history_shards", why)
    if configuration.timezone != "UTC":
        try:
            ZoneInfo(configuration.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            name = configuration.timezone
            raise _Refused(origins, "timezone", f"{name!r} is no time zone") from error


def _check_kafka(kafka: KafkaSettings, origins: Mapping[str, str]) -> None:
    if kafka.min_insync_replicas > kafka.replication:
        why = f"{kafka.min_insync_replicas}, with replication {kafka.replication}"
        raise _Refused(origins, "kafka.min_insync_replicas", why)
    known = {topic.short_name for topic in TOPICS}
    for name in kafka.retention_days:
        if name not in known:
            why = f"no topic {name!r}; known: {', '.join(sorted(known))}"
            raise _Refused(origins, "kafka.retention_days", why)
    _check_security(kafka.security, origins)


def _check_security(security: SecuritySettings, origins: Mapping[str, str]) -> None:
    """What is set and would not be used is as wrong as what is missing: nobody would notice."""
    asked = security.protocol
    tls = "ca_file", "certificate_file", "key_file"
    login = "username", "password", "password_file"
    unused = (() if asked.endswith("ssl") else tls) + (() if uses_login(security) else login)
    for name in unused:
        if getattr(security, name):
            why = f"is set, and {SECURITY}.protocol = {asked!r} does not use it"
            raise _Refused(origins, f"{SECURITY}.{name}", why)
    if security.key_file and not security.certificate_file:
        raise _Refused(origins, f"{SECURITY}.key_file", "certificate_file is not set")
    if not uses_login(security):
        return
    if not security.username:
        raise _Refused(origins, f"{SECURITY}.username", f"is not set, and {asked} needs it")
    if set(security.username) & set("=,") or not security.username.isprintable():
        why = "holds a comma, '=' or a control character, which SCRAM does not take"
        raise _Refused(origins, f"{SECURITY}.username", why)
    if bool(security.password) == bool(security.password_file):
        why = "set one of password_file and password"
        raise _Refused(origins, f"{SECURITY}.password_file", why)


def _check_readers(
    security: SecuritySettings, file: Path | None, origins: Mapping[str, str]
) -> None:
    """A password for everybody to read is refused in our file and told of a file of others: where
    Kubernetes puts a secret, its mode is 0644 unless somebody asks for another.
    """
    key = f"{SECURITY}.password"
    if security.password and origins.get(key) == str(file) and readable_by_others(str(file)):
        why = f"everybody can read that file; chmod o-r {file}, or set password_file"
        raise _Refused(origins, key, why)
    for name in ("password_file", "key_file"):
        named = getattr(security, name)
        if named and readable_by_others(named):
            _log.warning("%s.%s: everybody can read %s; chmod o-r it", SECURITY, name, named)


class _Refused(SettingsError):
    """A value that only makes no sense beside others."""

    def __init__(self, origins: Mapping[str, str], key: str, why: str) -> None:
        super().__init__(f"{origins.get(key, 'settings')}: {key}: {why}")
