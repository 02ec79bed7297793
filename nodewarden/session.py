"""What the wiring hands to each command: the environment as it was at the start, and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from nodewarden.settings_file import CONFIG_VARIABLE, Effective, load
from telemetry.addresses import host_port
from telemetry.errors import SettingsError
from telemetry.settings import Configuration

Command = TypeVar("Command", bound=Callable[..., object])


class Session:
    """One run of the command line. Commands take it with `@click.pass_obj`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment as it was at the start."""
        return self._environ

    def settings(self, file: Path | None) -> Effective:
        """Settings of `file`, else of NODEWARDEN_CONFIG, else none. Raises SettingsError."""
        return load(self.settings_path(file), self._environ)

    def settings_path(self, file: Path | None) -> Path | None:
        """Which file the settings are of."""
        named = self._environ.get(CONFIG_VARIABLE)
        return file or (Path(named) if named else None)

    def configured(self, file: Path | None, broker: str | None) -> Configuration:
        """What a service runs with. Raises SettingsError."""
        return with_broker(self.settings(file).configuration, broker)


def config_option(command: Command) -> Command:
    """`--config F`, handed over as `config: Path | None`."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=True),
        metavar="F",
        help=f"Settings file (TOML); else ${CONFIG_VARIABLE}.",
    )(command)


def broker_option(command: Command) -> Command:
    """`--broker HOST:PORT`, handed over as `broker: str | None`; see `with_broker`."""
    return click.option(
        "--broker", metavar="HOST:PORT", help="Kafka's address, instead of the settings' brokers."
    )(command)


def with_broker(configuration: Configuration, broker: str | None) -> Configuration:
    """`configuration`, its brokers replaced where `broker` is given. Raises SettingsError."""
    if broker is None:
        return configuration
    if host_port(broker, port_min=1) is None:
        raise SettingsError(f"--broker {broker}: expected HOST:PORT, as 127.0.0.1:9092")
    kafka = msgspec.structs.replace(configuration.kafka, brokers=(broker,))
    return msgspec.structs.replace(configuration, kafka=kafka)
