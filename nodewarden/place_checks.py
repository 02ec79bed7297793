"""Settings that name a place: an address to serve or to call, a URL, a path others know too.

What stands here stops every start, also where only another service would use it, and with it
`config check`: whoever wrote it cannot have meant it. Whether somebody is there is asked later.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import PurePosixPath

from telemetry.addresses import host_port, wrong_url
from telemetry.hostlist import expand
from telemetry.settings import Configuration

Wrong = tuple[str, str]
_SERVED = (
    "stream.metrics_address", "archive.metrics_address", "inventory.metrics_address",
    "collect.metrics_address", "act.metrics_address", "syslog.address", "act.address",
)  # fmt: skip
_NEEDED = frozenset({"act.address", "act.url"})  # of the others "" is: none
_SERVERS = "act.url", "archive.endpoint_url"  # what lies behind the server is ours to say
_URLS = (
    "collect.exporters", "prometheus.url", "act.workers", "act.inventory", "act.silences.url",
    "deadman.workers",
)  # fmt: skip
_SECRET_URLS = "act.webhook.url", "deadman.url"
_UNIX_URLS = "act.slurm.url", "inventory.slurmrestd.url"
_ABSOLUTE = {
    "act.launch.dir": "jobs have it as NODEWARDEN_LAUNCH_DIR",
    "act.mpirun.dir": "it must be the same wherever act is started",
    "collect.step_socket": "jobs find it there",
    "collect.jobs_dir": "Slurm's prolog writes there",
}


def wrong_places(configuration: Configuration) -> Iterator[Wrong]:
    """Key and what is wrong with it."""
    for key in _SERVED:
        for address in _values(configuration, key):
            if host_port(address) is None:
                yield key, f"{address!r}: expected HOST:PORT, as 127.0.0.1:9120"
    for broker in configuration.kafka.brokers:
        if host_port(broker, port_min=1) is None:
            yield "kafka.brokers", f"{broker!r}: expected HOST:PORT, as 127.0.0.1:9092"
    yield from _urls(configuration)
    for text in configuration.inventory.protected:
        if isinstance(why := expand(text), str):
            yield "inventory.protected", why
    for key, why in _ABSOLUTE.items():
        for path in _values(configuration, key):
            if not PurePosixPath(path).is_absolute() or not path.isprintable():
                yield key, f"{path!r} is no absolute path, and {why}"


def _urls(configuration: Configuration) -> Iterator[Wrong]:
    for key in (*_SERVERS, *_URLS, *_SECRET_URLS, *_UNIX_URLS):
        for url in _values(configuration, key):
            why = wrong_url(url, server_only=key in _SERVERS, unix=key in _UNIX_URLS)
            if why:
                yield key, why if key in _SECRET_URLS else f"{url!r}: {why}"


def _values(configuration: Configuration, key: str) -> list[str]:
    """The setting's values; none where it is not set and need not be."""
    value: str | tuple[str, ...] = attrgetter(key)(configuration)
    if not isinstance(value, str):
        return list(value)
    return [value] if value or key in _NEEDED else []
