"""`nodewarden audit`: every decision of an archive made again, byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from nodewarden.auditing import Audited, audit
from nodewarden.commands.replay import json_text
from nodewarden.progress import bar
from nodewarden.session import Session, config_option

SHOWN_MAX = 20  # on a terminal; --json has more


@click.command("audit")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@config_option
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="G.toml",
    help="Decide by the [act] settings of this file: what they would have changed.",
)  # fmt: skip
@click.option("--ladder/--no-ladder", default=True, help="Replay the telemetry too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_obj
def command(
    session: Session, path: Path, config: Path | None, against: Path | None, ladder: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Make each decision in the archive PATH again, from what stands before it in the log.

    Each saying of a decision has to come out byte for byte, and its verdict has to be one that
    replay gives. Exit status: 0 nothing differs, 1 something does, 2 no archive of ours.
    """
    configuration = session.settings(config).configuration
    settings = None if against is None else session.settings(against).configuration.act
    with bar() as progress:
        found = audit(path, configuration, settings, ladder=ladder, progress=progress)
    if as_json:
        said: dict[str, Any] = {"clean": found.is_clean, **msgspec.to_builtins(found)}
        sys.stdout.write(json_text(said))
    else:
        click.echo("\n".join(_printable(line) for line in _lines(found)))
    return 0 if found.is_clean else 1


def _lines(found: Audited) -> Iterator[str]:
    yield f"decisions: {_counts(found.decisions)}"
    for one in found.differing[:SHOWN_MAX]:
        yield f"  DIFFERS {one.decision} revision {one.revision} at offset {one.offset}, " \
              f"{one.state}, incident {one.incident or '-'}: {one.reason}"  # fmt: skip
        for field in one.differences:
            yield f"    {field.field}: logged {field.logged}, made again {field.remade}"
    yield from _more(found.decisions["differs"])
    for one in found.unchecked[:SHOWN_MAX]:
        yield f"  unchecked {one.decision} at offset {one.offset}: {one.reason}"
    yield from _more(found.decisions["unchecked"])
    yield from (f"  DIFFERS {fault}" for fault in found.snapshots[:SHOWN_MAX])
    if found.ladder is None:
        yield "verdicts: not compared with replay's"
    else:
        yield f"verdicts against replay: {_counts(found.ladder.verdicts)}"
        for kind, unlike in (
            ("DIFFERS", found.ladder.differing), ("unchecked", found.ladder.unchecked)
        ):  # fmt: skip
            for line in unlike[:SHOWN_MAX]:
                yield f"  {kind} {line.decision} of incident {line.incident}: {line.reason}"
    yield f"requests: {found.requests_taken} taken, {found.requests_refused} refused"
    for refusal in found.refusals[:SHOWN_MAX]:
        by = refusal.by or "nobody"
        yield f"  {refusal.count} x {refusal.verb} by {by}: {refusal.reason}"
    rest = f", {found.rejected} of them no record of ours" if found.rejected else ""
    versions = ", ".join(found.versions) or "-"
    yield f"records: {found.records}{rest}; settings said {found.settings} times, by {versions}"
    yield from (f"torn: {text}" for text in found.torn[:SHOWN_MAX])


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{count} {result}" for result, count in counted.items())


def _more(count: int) -> Iterator[str]:
    if count > SHOWN_MAX:
        yield f"  and {count - SHOWN_MAX} more"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
