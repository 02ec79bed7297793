"""Progress bars (tqdm, Lightning, NeMo) and what Hugging Face's Trainer prints between them.

A bar's `s/it` is a running average, so a step's time is the difference of two bars' elapsed
times, which are whole seconds: below `COARSE_S` that is too coarse to be a time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from collectors.training import rows
from collectors.training.fields import fill, number
from collectors.training.model import Note, Step

COARSE_S = 10
SPEAKERS_MAX = 256

BAR_EXAMPLE = " 14%|#4        | 377/2724 [13:55:57<86:19:20, 132.41s/it]"
DICT_EXAMPLE = "{'loss': 0.2051, 'grad_norm': nan, 'learning_rate': 9.77e-06, 'epoch': 0.53}"

_BAR = re.compile(
    r"(?P<words>[A-Za-z][\w .:/-]{0,60}?)?:? {0,4}\d{1,3}%\|[^|\n]{0,400}\| {0,4}"
    r"(?P<n>\d{1,12})/(?P<of>\d{1,12}|\?)"
    r" \[(?P<elapsed>[\d:]{2,12})<(?P<left>[\d:?]{1,12})(?P<rest>[^\]{\n]{0,1000})\]?"
)
PLAIN = re.compile(
    rb"\r?(?!std)(\[[A-Za-z_]{1,20}\d{1,7}\]: ?)?(?:([A-Za-z]{1,20}(?: \d{1,6})?):)? {0,4}"
    rb"\d{1,3}%\|[^|\r\n\x1b\x00:{\[]{0,300}+\| {0,4}(\d{1,12})/(\d{1,12})"
    rb" \[(\d{1,6}(?::\d\d){1,2})<[\d:?]{1,12}"
    rb"(?:, {0,4}[\d.?]{1,16}(?:s/[a-z]{1,8}|[a-z]{1,8}/s)|(, [\w ,./?+=-]{0,600}+))?"
    rb"\]?[ \t]{0,200}+(?:\r?\n|\r|\Z)"
)
"""A bar that is alone between line ends or carriage returns, with these: a rank's label, name, n,
of, elapsed, numbers it shows. Nothing in it can be a time, a failure or another form."""

_CLOCK = re.compile(r"\d+:\d+(?::\d+)?")
_TRAINS = re.compile(r"(?:Epoch|Train|Step|Iteration)", re.IGNORECASE)
_ROW = re.compile(r"\{'(?P<body>[^{}\n]{1,4096})\}")
_PAIR = re.compile(
    r"'?(?P<name>[\w/. -]{1,60})'?: "
    r"(?P<value>nan|-?inf|[-+]?[\d.]{1,24}(?:[eE][-+]?\d{1,4})?)(?:,|$)"
)


class Bar(Struct, frozen=True):
    """One drawing of a bar.

    trains  its name is none or speaks of steps
    named   it has a name
    shown   what stands behind its times
    """

    n: int
    of: int | None
    elapsed_s: int
    trains: bool
    named: bool
    shown: str
    start: int
    end: int


class _Seen(Struct, frozen=True, gc=False):
    """The newest drawing of a speaker's bar; `of` is the size of the bar that counts steps."""

    of: int | None
    n: int
    elapsed_s: int


class Bars:
    """The bars of one log. `clock_s`: when the bars were begun, where that is known."""

    def __init__(self, clock_s: float | None) -> None:
        self._clock_s = clock_s
        self._rows = rows.Layout()
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._key = ""  # of the newest drawing
        self._minute, self._minute_s = b"", 0

    def read(self, key: str, text: str) -> Iterator[tuple[Step | Note | None, str]]:
        """Bars and dicts of a speaker's line in their order, each with what follows it."""
        at = 0
        while (found := bar(text, at)) is not None:
            before = row(text[at : found.start])
            if before is not None:
                yield self._of_bar(key, before), text[found.end :]
            yield self.drawn(key, found), text[found.end :]
            at = found.end
        last = row(text[at:])
        if last is not None:
            yield self._of_bar(key, last), ""

    def row(self, block: bytes, position: int) -> tuple[Step | None, int]:
        """What the row that starts there says, and where it ends, of a line without a speaker."""
        step, end = self._rows.read(block, position)
        if step is not None:
            self._of_bar("", step)
        return step, end

    def _of_bar(self, key: str, found: Step | Note) -> Step | Note:
        """What a dict says belongs to the bar before it."""
        seen = self._seen.get(key)
        if seen is not None and found.step is None:
            found.step = seen.n
        return found

    def drawn(self, key: str, found: Bar) -> Step | None:
        """A bar's step, None where it is drawn again or counts something else."""
        if not found.trains:
            return None
        return self._step(key, found.n, found.of, found.elapsed_s, found.named, found.shown)

    def plain(self, key: str, found: re.Match[bytes]) -> Step | None:
        """The same of a bar that `PLAIN` has found."""
        _, words, n, of, clock, shown = found.groups()
        if words is not None and _TRAINS.match(words.decode("ascii")) is None:
            return None
        minute = clock[:-3]
        if minute != self._minute:  # most are drawn within the minute of the one before
            self._minute, self._minute_s = minute, _seconds(minute.decode("ascii") + ":00")
        elapsed_s = self._minute_s + int(clock[-2:])
        words_shown = shown.decode("ascii") if shown is not None else ""
        return self._step(key, int(n), int(of), elapsed_s, words is not None, words_shown)

    def _step(
        self, key: str, n: int, of: int | None, elapsed_s: int, named: bool, shown: str
    ) -> Step | None:
        seen = self._seen.get(key)
        if seen is not None and (
            (n == seen.n and of == seen.of) or (not named and seen.of not in (of, seen.n))
        ):
            return None
        step = Step("bar", n)
        if shown:
            _read_numbers(step, shown)
        if seen is not None and n > seen.n and elapsed_s - seen.elapsed_s >= COARSE_S:
            step.step_time_s = (elapsed_s - seen.elapsed_s) / (n - seen.n)
            step.steps = n - seen.n
        if self._clock_s is not None:
            step.at_s, step.reckoned = self._clock_s + elapsed_s, True
        self._seen[key] = _Seen(of, n, elapsed_s)
        if key != self._key:
            self._key = key
            self._seen.move_to_end(key)
            if len(self._seen) > SPEAKERS_MAX:
                self._seen.popitem(last=False)
        return step


def bar(text: str, at: int) -> Bar | None:
    """The next bar in a line."""
    if text.find("%|", at) < 0:  # the expression tries a name at every letter
        return None
    found = _BAR.search(text, at, at + 65_536)
    if found is None:
        return None
    if _CLOCK.fullmatch(found["elapsed"]) is None:
        return None
    words = found["words"]
    return Bar(
        int(found["n"]), int(found["of"]) if found["of"] != "?" else None,
        _seconds(found["elapsed"]),
        not words or _TRAINS.match(words) is not None, bool(words),
        found["rest"], found.start(), found.end(),
    )  # fmt: skip


def _read_numbers(step: Step, shown: str) -> None:
    """Fill the step with what its bar shows: `loss=3.1, global_step=794.0`."""
    if "=" not in shown:
        return
    values: dict[str, float] = {}
    for part in shown.split(", ")[:64]:
        name, equals, said = part.partition("=")
        value = number(said) if equals else None
        if value is not None:
            values[name.replace("_", "").replace(" ", "").lower()] = value
    named = values.get("globalstep")
    fill(step, values)
    if named is not None and 0.0 <= named < 1e12:
        step.step = int(named)


def row(text: str) -> Step | Note | None:
    """A dict as Python prints it: bare nan, so neither JSON nor a literal."""
    found = _ROW.search(text) if "{'" in text else None
    if found is None:
        return None
    pairs = {one["name"]: float(one["value"]) for one in _PAIR.finditer("'" + found["body"])
             if number(one["value"]) is not None}  # fmt: skip
    if "eval_loss" in pairs:
        return Note("evaluation", more={"loss": pairs["eval_loss"]})
    if "loss" not in pairs or "train_runtime" in pairs:
        return None
    return fill(Step("hugging-face"), {name.replace("_", ""): v for name, v in pairs.items()})


def _seconds(clock: str) -> int:
    """ "13:55:57" or "00:10" in seconds."""
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return total
