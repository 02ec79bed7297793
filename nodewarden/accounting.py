"""From an archive, a capture or the live log to an account: what is read, and how little of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from actions.accounting.account import Accountant
from actions.accounting.training import Period
from actions.ledger_log import decode as decode_action
from nodewarden.logs import open_logs
from nodewarden.replaying import replay
from telemetry.accounts import Account
from telemetry.archive import (
    ArchiveFile,
    Torn,
    archive_files,
    is_archive,
    read_archive,
    read_archive_file,
)
from telemetry.archive_line import ArchiveLine
from telemetry.codec import decode as decode_record
from telemetry.errors import InputError, SettingsError
from telemetry.findings import Incident
from telemetry.log_reading import read_to_end
from telemetry.ports import LogReader
from telemetry.records import Arrived, Rejected
from telemetry.settings import Configuration
from telemetry.topics import ACTIONS, INCIDENTS, TELEMETRY

TORN_SHOWN = 20
LEAD_S = 3 * 86_400.0  # before a period: how far jobs were, how long their steps took
# Of a shard's telemetry nothing else is decoded: frames are nearly all of it.
READ_KINDS = frozenset({"steps", "allocation", "event"})
END_KIND = "end"  # of a piece of history: lies past all timers, and nobody saw the job until then
_INCIDENT = msgspec.json.Decoder(Incident)


class _Kind(msgspec.Struct):
    kind: str = ""
    replayed: float | None = None


_KIND = msgspec.json.Decoder(_Kind)


class Ledger:
    """Feeds an accountant line by line, and counts what could not be read."""

    def __init__(self, accountant: Accountant) -> None:
        self.accountant = accountant
        self.lines = 0
        self.incidents = 0
        self._unread = dict.fromkeys((TELEMETRY, INCIDENTS, ACTIONS), 0)
        self._torn: list[str] = []

    def take(self, found: ArchiveLine | Torn) -> None:
        """A line of one of the three topics."""
        if isinstance(found, Torn):
            self.torn(f"{found.path}: {found.reason}")
            return
        self.lines += 1
        if found.topic == TELEMETRY:
            self._telemetry(found)
        elif found.topic == INCIDENTS:
            self._incident(found)
        elif found.topic == ACTIONS and found.value is not None:
            record = decode_action(found.value)
            if record is None:
                self._unread[ACTIONS] += 1
            else:
                self.accountant.action(record)

    def torn(self, text: str) -> None:
        """A part of the input that could not be read."""
        if len(self._torn) < TORN_SHOWN:
            self._torn.append(f"read to its last whole part: {text}")

    def notes(self) -> list[str]:
        """What of the input was not used."""
        lost = [f"{count} records of {topic} could not be read"
                for topic, count in self._unread.items() if count]  # fmt: skip
        return [*self._torn, *lost]

    def _telemetry(self, line: ArchiveLine) -> None:
        arrival_s = line.timestamp_ms / 1000.0
        kind = dict(line.headers).get("kind", b"").decode("utf-8", "replace")
        if kind and kind not in READ_KINDS and arrival_s > 0.0:
            self._passed(kind, arrival_s)
            return
        try:
            head = _KIND.decode(line.value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._unread[TELEMETRY] += 1
            return
        arrival_s = arrival_s if head.replayed is None else head.replayed
        if head.kind not in READ_KINDS:
            self._passed(head.kind, arrival_s)
            return
        record = decode_record(line.value or b"", f"{line.topic}/{line.partition}@{line.offset}")
        if isinstance(record, Rejected):
            self._unread[TELEMETRY] += 1
        else:
            self.accountant.telemetry(record, arrival_s)

    def _passed(self, kind: str, arrival_s: float) -> None:
        if arrival_s > 0.0 and kind != END_KIND:
            self.accountant.passed(arrival_s)

    def _incident(self, line: ArchiveLine) -> None:
        if line.value is None:
            return
        try:
            incident = _INCIDENT.decode(line.value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._unread[INCIDENTS] += 1
            return
        self.incidents += 1
        self.accountant.incident(incident)


def account_of_path(
    path: Path, configuration: Configuration, accountant: Accountant, tz: str | None = None
) -> Account:
    """The account of an archive, or of anything that `replay` reads.

    Where no incidents are archived they are found by replaying the telemetry. Raises InputError.
    """
    ledger = Ledger(accountant)
    notes: list[str] = []
    if is_archive(path) and archive_files(path, INCIDENTS):
        for line in _archived(path, configuration, accountant.period):
            ledger.take(line)
    else:
        notes = _replayed(path, configuration, ledger, tz)
    if ledger.lines == 0:
        raise InputError(f"{path}: holds no record that can be read; check the files")
    return accountant.account([*notes, *ledger.notes()])


def _archived(
    path: Path, configuration: Configuration, period: Period | None
) -> Iterator[ArchiveLine | Torn]:
    for partition in _partitions(path, configuration):
        files = archive_files(path, TELEMETRY, partition)
        for file in files if period is None else _needed(path, files, period):
            yield from read_archive_file(path, file)
    yield from read_archive(path, INCIDENTS)
    yield from read_archive(path, ACTIONS)


def _needed(path: Path, files: Sequence[ArchiveFile], period: Period) -> list[ArchiveFile]:
    """Of one partition's files, in order, those that may say something of the period.

    Each begins with a time of the log, and the log's time never goes back; a file whose first line
    tells no time is read.
    """
    found: list[ArchiveFile] = []
    for file in files:
        first_s = _first_s(path, file)
        if first_s is not None and first_s >= period[1]:
            continue
        if first_s is not None and first_s < period[0] - LEAD_S:
            found.clear()  # whatever lies before it is older
        found.append(file)
    return found


def _first_s(path: Path, file: ArchiveFile) -> float | None:
    first = next(read_archive_file(path, file), None)
    if first is None or isinstance(first, Torn) or first.timestamp_ms <= 0:
        return None
    return first.timestamp_ms / 1000.0


def _partitions(path: Path, configuration: Configuration) -> list[int]:
    return _live({file.partition for file in archive_files(path, TELEMETRY)}, configuration)


def _live(found: Iterable[int], configuration: Configuration) -> list[int]:
    """The partitions of live shards; history only where there is nothing else."""
    partitions, shards = sorted(found), configuration.shards
    live = [one for one in partitions
            if one >= len(shards) or shards[one] not in configuration.history_shards]  # fmt: skip
    return live or partitions


def _replayed(
    path: Path, configuration: Configuration, ledger: Ledger, tz: str | None
) -> list[str]:
    """Telemetry through the engine, for its incidents; the accountant reads along."""
    logs = open_logs(path, configuration, tz)
    live = [log for log in logs if log.kind != "history"] or logs
    for log in live:
        log.records = _along(log.records, ledger)
    outcome = replay(live).outcome
    for incident in outcome.incidents.values():
        ledger.accountant.incident(incident)
    for log in live:
        for text in log.torn:
            ledger.torn(text)
    if is_archive(path):
        for line in read_archive(path, ACTIONS):
            ledger.take(line)
    note = "no archived incidents: those of this report were found by replaying the telemetry"
    return [note, *(note for log in live for note in log.notes)]


def _along(records: Iterable[Arrived], ledger: Ledger) -> Iterator[Arrived]:
    for arrived in records:
        ledger.lines += 1
        if not isinstance(arrived.record, Rejected):
            ledger.accountant.telemetry(arrived.record, arrived.arrival)
        yield arrived


def account_of_log(
    reader: LogReader, configuration: Configuration, accountant: Accountant
) -> Account:
    """The account of what the live topics hold; `reader` leaves out what was taken back.

    Raises SourceUnavailable; SettingsError where there is no such topic.
    """
    partitions = reader.partitions(TELEMETRY)
    if not partitions:
        raise SettingsError(f"no topic {TELEMETRY}; make it: nodewarden topics create")
    ledger = Ledger(accountant)
    for partition in _live(partitions, configuration):
        for line in read_to_end(reader, TELEMETRY, partition):
            ledger.take(line)
    for topic in (INCIDENTS, ACTIONS):
        for line in read_to_end(reader, topic):
            ledger.take(line)
    return accountant.account(ledger.notes())
