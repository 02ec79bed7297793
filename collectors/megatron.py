"""Megatron-LM logs, line by line, into steps and failures. Pure: the state is a value.

A step line speaks for the whole job and prints the mean time of an iteration since the line before.
A traceback is one failure, named by its last line. The first failure of a log is its cause; what
other ranks shout afterwards is marked as an echo by being less severe.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from collectors.failures import failure_class
from telemetry.codec import AT_MAX_S, AT_MIN_S, rejected
from telemetry.records import Event, Rejected, StepKind, Steps

LINE_BYTES_MAX = 65_536
TEXT_MAX = 4_096
TRACEBACK_LINES_MAX = 2_000
OPEN_MAX = 256  # tracebacks at once, of different ranks
PLACE_MAX = 64

SOURCE = "training"


@dataclass(frozen=True, slots=True)
class State:
    """What a log has said so far.

    job         whose log it is
    tz          of times that name no zone
    rank        the file's rank, None where one file speaks for the job
    clock_s     when the log starts, by `clock.json`; the printed durations add up from there
    last_s      the newest time known, None before the first
    anchor_s    when the newest step ended, before the first one the first time known
    counted_up  steps whose time was reckoned, not printed
    iteration   of the newest step line
    next_kind   what the next step line has to carry in its mean: a checkpoint, an evaluation
    open        speaker, lines so far and the words of a C++ exception, of what is not yet complete
    failed      whether a failure was seen
    undated     step lines that could not be placed in time
    """

    job: str
    tz: tzinfo = UTC
    rank: int | None = None
    clock_s: float | None = None
    last_s: float | None = None
    anchor_s: float | None = None
    counted_up: int = 0
    iteration: int | None = None
    next_kind: StepKind = "train"
    open: tuple[tuple[str, int, str], ...] = ()
    failed: bool = False
    undated: int = 0


Said = Steps | Event | Rejected

_MARKERS = (
    b"iteration", b"Traceback", b"Error", b"Exception", b"checkpoint", b"[20", b"datetime",
    b"what():", b"terminate called", b"validation loss", b"valid loss",
)  # fmt: skip

# Who speaks: `[rank3]:` and `[default3]:` of torch, `180:` of srun, `vm-07-14:` of pdsh.
_SPEAKER = re.compile(
    r"(?:(?P<label>\d{1,7}|[A-Za-z][\w.-]{0,62}): {1,4}(?=\S))?"
    r"(?:\[(?:rank|default)(?P<rank>\d{1,7})\]: ?)?"
)
_DATE = re.compile(r" ?\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\] ?")
_ANY_DATE = re.compile(r"datetime: (\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_STEP = re.compile(r"\biteration {1,40}(\d{1,12}) ?/ {0,40}(\d{1,12}) {0,8}\|")
_RANKED = re.compile(r"(?:\d{1,7}: {1,4})?\[(?:rank|default)\d{1,7}\]:")
_FAILURE = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200}?(?:Error|Exception|Interrupt|Exit))(?::|$)")
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<name>[\w:]{1,200})'")
_SAVING = ("saving checkpoint at iteration", "successfully saved checkpoint")
_EVALUATED = ("validation loss at iteration", "valid loss at iteration")


def read_line(state: State, line: bytes, place: str) -> tuple[State, list[Said]]:
    """The state after one line, and what the line completes: mostly nothing."""
    if not state.open and not any(marker in line for marker in _MARKERS):
        return state, []
    if len(line) > LINE_BYTES_MAX:
        if _STEP.search(line[:512].decode("utf-8", "replace")) is None:
            return state, []
        return state, [rejected("line too long", line, place, state.last_s)]
    text = line.decode("utf-8", "replace").rstrip("\r\n\x00 ")
    speaker, rest = _speaker(text)
    at_s, rest = _dated(state, rest)
    if at_s is not None:
        anchor_s = at_s if state.anchor_s is None else state.anchor_s
        state = replace(state, last_s=at_s, anchor_s=anchor_s)
    step = _STEP.search(rest, 0, 256)
    if step is not None:
        return _step(state, step, rest, line, place, at_s)
    return _other(state, speaker, rest, text)


def _speaker(text: str) -> tuple[str, str]:
    """The rank or label that speaks, "" where none, and the rest of the line."""
    found = _SPEAKER.match(text)
    if found is None:
        return "", text
    rank, label = found["rank"], found["label"]
    if rank is None and label is not None and not label.isdecimal() and _is_word(label):
        return "", text  # "TypeError: …" is no speaker
    speaker = f"rank:{int(rank)}" if rank is not None else ""
    if rank is None and label is not None:
        speaker = f"rank:{int(label)}" if label.isdecimal() else label
    return speaker, text[found.end() :]


def _is_word(label: str) -> bool:
    return not any(char.isdigit() for char in label) or label.endswith(("Error", "Exception"))


def _dated(state: State, rest: str) -> tuple[float | None, str]:
    found = _DATE.match(rest)
    if found is not None:
        return _moment(found, state.tz), rest[found.end() :]
    found = _ANY_DATE.search(rest[:512])
    return (_moment(found, state.tz), rest) if found is not None else (None, rest)


def _moment(found: re.Match[str], tz: tzinfo) -> float | None:
    day, clock, fraction = found.groups()
    try:
        at_s = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=tz).timestamp()
    except (ValueError, OverflowError):
        return None
    at_s += float(f"0.{fraction}") if fraction else 0.0
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


def _step(
    state: State, found: re.Match[str], rest: str, line: bytes, place: str, at_s: float | None
) -> tuple[State, list[Said]]:
    fields = read_fields(rest[found.end() :])
    if not fields:
        return state, [rejected("step line without a field", line, place, at_s)]
    elapsed_s = _elapsed_s(fields)
    iteration = int(found[1])
    kind = _kind(state, iteration, elapsed_s)
    if at_s is None:
        at_s = _reckoned(state, iteration, elapsed_s)
        if at_s is None:
            return replace(state, iteration=iteration, undated=state.undated + 1), []
        state = replace(state, counted_up=state.counted_up + 1)
    state = replace(state, iteration=iteration, next_kind="train")
    state = replace(state, last_s=at_s, anchor_s=at_s)
    return state, [_steps(state, iteration, kind, fields, elapsed_s, at_s)]


def _reckoned(state: State, iteration: int, elapsed_s: float | None) -> float | None:
    """When a step without a printed time ended.

    Its duration, a mean over the iterations since the line before, after that line; or the time of
    a neighbouring line, where one was printed since then and is not that of the line before.
    """
    anchor_s = state.anchor_s if state.anchor_s is not None else state.clock_s
    if anchor_s is None or elapsed_s is None:
        return None
    count = 1
    if state.iteration is not None and iteration > state.iteration:
        count = iteration - state.iteration
    took_s = count * elapsed_s
    if state.last_s is not None and state.last_s >= anchor_s + took_s / 2.0:
        return state.last_s
    at_s = anchor_s + took_s
    return at_s if AT_MIN_S <= at_s < AT_MAX_S else None


def _kind(state: State, iteration: int, elapsed_s: float | None) -> StepKind:
    if state.iteration is None or iteration <= state.iteration:
        return "first"  # of the log, or after a restart that went back
    return state.next_kind if elapsed_s is not None else "unknown"


def _steps(
    state: State, iteration: int, kind: StepKind, fields: dict[str, float],
    elapsed_s: float | None, at_s: float,
) -> Steps:  # fmt: skip
    loss, grad = fields.get("lm loss"), fields.get("grad norm")
    bad = []
    if (loss is not None and not math.isfinite(loss)) or fields.get(
        "number of nan iterations", 0.0
    ) > 0.0:
        bad.append("loss")
    if grad is not None and not math.isfinite(grad):
        bad.append("grad_norm")
    throughput = fields.get("throughput per GPU (TFLOP/s/GPU)", fields.get("TFLOPs"))
    return Steps(
        at=at_s, node="", source=SOURCE, started_at=0.0, seq=0, job=state.job, step_kind=kind,
        step=[iteration],
        step_time_s=_column(elapsed_s),
        loss=_column(loss),
        grad_norm=_column(grad),
        throughput=_column(throughput),
        nonfinite=[bad] if bad else [],
    )  # fmt: skip


def _column(value: float | None) -> list[float | None]:
    if value is None:
        return []
    return [value if math.isfinite(value) else None]


def read_fields(text: str) -> dict[str, float]:
    """`name: number | name: number |` as a dict; what is no such pair is left out."""
    fields: dict[str, float] = {}
    for part in text[:8_192].split("|")[:64]:
        name, colon, value = part.rpartition(":")
        if not colon or "_" in value:
            continue
        try:
            fields[name.strip()] = float(value)
        except ValueError:
            continue
    return fields


def _elapsed_s(fields: dict[str, float]) -> float | None:
    """A finite time above zero; Megatron prints ms, some forks s."""
    in_ms = fields.get("elapsed time per iteration (ms)")
    elapsed_s = fields.get("elapsed time per iteration (s)") if in_ms is None else in_ms / 1000.0
    if elapsed_s is None or not math.isfinite(elapsed_s) or elapsed_s <= 0.0:
        return None
    return elapsed_s


def finish(state: State) -> tuple[State, list[Said]]:
    """What the log's end leaves: a failure whose last words were cut off is one all the same."""
    said: list[Said] = []
    for speaker, _, thrown in state.open:
        state, more = _failed(state, speaker, "", thrown or "Traceback (most recent call last):")
        said += more
    return replace(state, open=()), said


def _other(state: State, speaker: str, rest: str, text: str) -> tuple[State, list[Said]]:
    words = rest.lstrip()
    if words.startswith(_SAVING):
        return replace(state, next_kind="checkpoint"), []
    if words.startswith(_EVALUATED):
        return replace(state, next_kind="evaluation"), []
    if words.startswith("Traceback (most recent call last)"):
        return _opened(state, speaker, ""), []
    if _THROWN.match(words) is not None:
        return _opened(state, speaker, text), []
    found = _FAILURE.match(rest)
    row = next((row for row in state.open if row[0] == speaker), None)
    if row is None:
        if found is not None and _RANKED.match(text) is not None:
            return _failed(state, speaker, found["name"], text)
        return state, []
    _, lines, thrown = row
    if thrown:  # "what():" follows at once and says why
        said = f"{thrown} {words}" if words.startswith("what():") else thrown
        return _failed(_closed(state, speaker), speaker, "", said)
    if found is not None:
        return _failed(_closed(state, speaker), speaker, found["name"], text)
    if lines >= TRACEBACK_LINES_MAX:
        return _failed(_closed(state, speaker), speaker, "", text)
    return _counted(state, speaker, lines + 1), []


def _opened(state: State, speaker: str, thrown: str) -> State:
    rows = tuple(row for row in state.open if row[0] != speaker)[-(OPEN_MAX - 1) :]
    return replace(state, open=(*rows, (speaker, 0, thrown[:TEXT_MAX])))


def _counted(state: State, speaker: str, lines: int) -> State:
    rows = tuple((name, lines, said) if name == speaker else (name, count, said)
                 for name, count, said in state.open)  # fmt: skip
    return replace(state, open=rows)


def _closed(state: State, speaker: str) -> State:
    return replace(state, open=tuple(row for row in state.open if row[0] != speaker))


def _failed(state: State, speaker: str, name: str, text: str) -> tuple[State, list[Said]]:
    """One failure. Without any time in the log it cannot be placed, and is counted with steps."""
    at_s = state.last_s if state.last_s is not None else state.clock_s
    if at_s is None:
        return replace(state, undated=state.undated + 1, failed=True), []
    entity = speaker if speaker.startswith("rank:") else ""
    if not entity and state.rank is not None:
        entity = f"rank:{state.rank}"
    event = Event(
        at=at_s, node="", source=SOURCE, started_at=0.0, seq=0, type="process",
        severity="warning" if state.failed else "critical",
        class_=failure_class(name, text), entity=entity, text=text[:TEXT_MAX], job=state.job,
    )  # fmt: skip
    return replace(state, failed=True), [event]
