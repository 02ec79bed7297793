"""`nodewarden import`: what a site already has into one archive that replays."""

from __future__ import annotations

from pathlib import Path

import click

from nodewarden.clock import SystemClock
from nodewarden.exports import export_files, is_export
from nodewarden.importing import Imported, import_exports, import_logs
from nodewarden.logs import Log, format_of, open_logs
from nodewarden.progress import bar
from nodewarden.publishing import publish_logs
from nodewarden.session import Session, broker_option, config_option
from nodewarden.shards import history_target
from telemetry.archive import is_archive
from telemetry.errors import InputError, SettingsError
from telemetry.settings import Configuration


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write an archive.")
@click.option("--kafka", is_flag=True, help="Publish to a history shard of the live topics.")
@click.option("--shard", metavar="NAME", help="Which history shard; the first where not given.")
@click.option("--tz", metavar="Z", help="Time zone of log lines that name none, as Europe/Berlin.")
@config_option
@broker_option
@click.pass_obj
def command(
    session: Session, paths: tuple[Path, ...], out: Path | None, kafka: bool, shard: str | None,
    tz: str | None, config: Path | None, broker: str | None,
) -> None:  # fmt: skip
    """Turn captures, Prometheus' history and Kafka exports into one archive that replays as they,
    or publish them, archives too, as pieces of history that the live engine folds.

    In an archive, captures and Prometheus' history become pieces of history; exports the topics
    they were.
    """
    configuration = session.configured(config, broker)
    if kafka == (out is not None):
        raise SettingsError("give --out DIR (archive) or --kafka (live topics)")
    if out is None:
        _publish(paths, tz, configuration, shard)
        return
    exported = [path for path in paths if not _is_capture_like(path)]
    if exported and len(exported) < len(paths):
        raise InputError(f"{exported[0]}: a Kafka export; import exports and captures separately")
    notes: list[str] = []
    done = (
        _exports(paths, out, notes) if exported else _captures(paths, out, tz, configuration, notes)
    )
    click.echo(f"{done.records} records in {out}")
    if done.rejected:
        click.echo(f"{done.rejected} rejected records kept under nodewarden.rejected")
    for note in notes:
        click.echo(f"note: {note}")


def _publish(
    paths: tuple[Path, ...], tz: str | None, configuration: Configuration, shard: str | None
) -> None:
    from collectors.broker.publisher import KafkaPublisher  # noqa: PLC0415 - only where needed

    target = history_target(configuration, shard)
    with bar() as progress:
        logs = [log for path in paths for log in open_logs(path, configuration, tz, progress.read)]
        publisher = KafkaPublisher(configuration.kafka, SystemClock(), "nodewarden-import")
        try:
            done = publish_logs(logs, publisher, target, progress.folded)
        finally:
            publisher.close()
    click.echo(f"{done.records} records published to shard {target.shard}")
    if done.rejected:
        click.echo(f"{done.rejected} rejected records published to nodewarden.rejected")
    for log in logs:
        _say_notes(log)


def _say_notes(log: Log) -> None:
    for note in [*log.notes, *(f"read to its last whole part: {text}" for text in log.torn)]:
        click.echo(f"note: {note}")


def _is_capture_like(path: Path) -> bool:
    """Whether it becomes a piece of history; an export does not. InputError for all the rest."""
    format_of(path)
    if is_archive(path):
        raise InputError(f"{path}: is an archive already; replay reads it as it is")
    return not is_export(path)


def _captures(
    paths: tuple[Path, ...], out: Path, tz: str | None, configuration: Configuration,
    notes: list[str],
) -> Imported:  # fmt: skip
    with bar() as progress:
        logs = [log for path in paths for log in open_logs(path, configuration, tz, progress.read)]
        done = import_logs(logs, out, configuration)
    for log in logs:
        notes += log.notes
        notes += [f"read to its last whole part: {text}" for text in log.torn]
    return done


def _exports(paths: tuple[Path, ...], out: Path, notes: list[str]) -> Imported:
    files = [file for path in paths for file in export_files(path)]
    files.sort(key=lambda file: file.first)
    torn: list[str] = []
    repeats = [0]
    done = import_exports(files, out, torn, repeats)
    notes += [f"read to its last whole part: {text}" for text in torn]
    if repeats[0]:
        notes.append(f"{repeats[0]} records stood at a place already read and were left out")
    return done
