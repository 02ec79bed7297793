"""docs/inputs.md, written from the parsers' own tables: `python -m nodewarden.inputs_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from collectors import (
    exporter_forms,
    kafka_exports,
    kubernetes,
    nic,
    prometheus_api,
    pyspy,
    slurm,
    slurm_logs,
)
from collectors.collectives import reader as collectives
from collectors.kernel import envelopes
from collectors.kernel import forms as kernel
from collectors.kinds import KINDS
from collectors.slurm_objects import OBJECTS as SCHEDULER_OBJECTS
from collectors.switch import forms as switches
from collectors.training import failures
from collectors.training import forms as training
from nodewarden.logs import FORMATS
from telemetry.metrics import CATALOGUE

EXAMPLE_MAX = 160
HEAD = """# What is read

This page is written from the parsers' tables (`python -m nodewarden.inputs_page > docs/inputs.md`);
a form that has no row here is not read. Adding one is adding a row and a sample.

- An ordinary line gives nothing. One that is recognised and broken gives an object of type
  `rejected` with `reason` and `text`, and costs only itself.
- A value that is blank, out of its range or no number is missing, never 0.
- A listing that is cut, or comes with errors, is incomplete: what it lacks is unknown, never gone.
- Times that name no zone are read in `--tz`, else `capture.json`'s `timezone`, else the settings'
  `timezone`, else UTC; the report says which. A year that is not printed is `capture.json`'s
  `year`, else the one nearest to the metrics, else to the training logs, else to the first job's
  `start` in `jobs.json`.
"""
SCHEDULER = """Slurm prints `end` of a running job as its time limit: it is left out. In a capture
(`alloc/*`) a node's state counts from when the listing says that the node came into it; a state
without a date is left out and the report says so. Only a reason that begins with `nodewarden:` is
ours to undo.
"""

SWITCHES = """Syslog of switches; in a capture `switch/<name>.log[.gz]`, times as of kernel logs, a
time zone's letters ("EDT") are not read. Which node a port leads to stands in `jobs.json`:
`"topology": {"n1": {"ports": {"leaf1:Ethernet12": "mlx5_0"}}}`. A mapped port's lines are events of
that node and NIC; a drop that node and switch both tell of counts once. What a switch says of any
other port accuses nobody. Error correction (FEC) is read from counters only: no switch is known to
log it in a public form.
"""

Row = Sequence[str]


def page() -> str:
    """The whole page."""
    parts = [HEAD, *_replayed()]
    for kind in sorted(KINDS):
        parts += [f"## `nodewarden parse {kind}`\n", *_KINDS.get(kind, lambda: iter(()))()]
    parts += _metrics()
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _replayed() -> Iterator[str]:
    yield "## `nodewarden replay` and `nodewarden import`\n"
    yield _table(("what", "its files"), ((row.name, row.files) for row in FORMATS))
    yield "A capture's `alloc/*.json|txt|yaml` holds what the scheduler printed (`parse slurm`).\n"
    yield "### Prometheus' HTTP API\n"
    yield _table(
        ("example", "where from"), [(_code(prometheus_api.EXAMPLE), prometheus_api.SOURCE)]
    )
    yield "### Kafka exports\n"
    yield _forms((row.name, row.example, row.source) for row in kafka_exports.FORMS)


def _slurm() -> Iterator[str]:
    yield SCHEDULER
    yield _forms((row.name, row.example, row.source) for row in slurm.FORMS)
    yield "Single lines; one that comes again adds to `count`:\n"
    yield _forms((row.name, row.example, row.source) for row in slurm_logs.LINE_FORMS)
    yield "The job of a pod is named by the first of these labels:\n"
    yield _table(
        ("label", "who writes it", "rank"),
        ((_code(label), who, _code(rank)) for label, who, rank in kubernetes.JOB_LABELS),
    )
    yield "Objects:\n"
    yield _table(
        ("type", "what", "fields"),
        ((_code(t), what, fields) for t, what, fields in SCHEDULER_OBJECTS),
    )


def _kernel() -> Iterator[str]:
    yield "What stands around a line:\n"
    yield _table(
        ("envelope", "example"), ((row.name, _code(row.example)) for row in envelopes.ENVELOPES)
    )
    yield "What the kernel says:\n"
    yield _table(
        ("form", "type", "class", "example", "seen in"),
        (
            (row.name, row.type, row.class_ or "by its code", _code(row.example), row.source)
            for row in kernel.FORMS
        ),
    )


def _exporter() -> Iterator[str]:
    yield _forms((row.name, row.example, row.source) for row in exporter_forms.FORMS)


def _nic() -> Iterator[str]:
    yield _forms((row.name, row.example, row.source) for row in nic.FORMS)
    yield SWITCHES
    yield _table(
        ("form", "class", "example", "seen in"),
        ((row.name, row.class_, _code(row.example), row.source) for row in switches.FORMS),
    )


def _training() -> Iterator[str]:
    yield "Steps:\n"
    yield _forms((row.name, row.example, row.source) for row in training.FORMS)
    yield "Failures:\n"
    yield _forms((row.name, row.example, row.source) for row in failures.FORMS)


def _stacks() -> Iterator[str]:
    yield _forms(pyspy.FORMS)


def _collectives() -> Iterator[str]:
    yield _forms(collectives.FORMS)


def _metrics() -> Iterator[str]:
    yield "## Metrics\n"
    yield (
        "A metric is recognised by what it counts, under any exporter's prefix. `class` tells"
        " whether it should be zero (abnormal_operation) or match its peers (performance).\n"
    )
    yield _table(
        ("ours", "unit", "class", "device", "bad", "known as"),
        (
            (_code(row.name), row.unit, row.class_, row.device, row.bad,
             ", ".join(map(_code, row.names)))
            for row in CATALOGUE
        ),
    )  # fmt: skip


_KINDS = {
    "slurm": _slurm, "kernel": _kernel, "exporter": _exporter, "nic": _nic, "training": _training,
    "stacks": _stacks, "collectives": _collectives,
}  # fmt: skip


def _forms(rows: Iterable[Row]) -> str:
    made = ((name, _code(example), source) for name, example, source in rows)
    return _table(("form", "example", "seen in"), made)


def _table(head: Row, rows: Iterable[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def _code(text: str) -> str:
    """As code, on one line, cut where it is long."""
    bare = " ".join(text.replace("\\n", "\n").replace("`", "'").split("\n"))
    if not bare.strip():
        return ""
    shown = bare if len(bare) <= EXAMPLE_MAX else f"{bare[:EXAMPLE_MAX]} ..."
    return f"`{shown.strip()}`"


if __name__ == "__main__":
    sys.stdout.write(page())
