"""Progress bars (tqdm, Lightning, NeMo) and what Hugging Face's Trainer prints between them.

A bar's `s/it` is a running average, so a step's time is the difference of two bars' elapsed
times, which are whole seconds: below `COARSE_S` that is too coarse to be a time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

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
    """

    n: int
    of: int | None
    elapsed_s: int
    trains: bool
    named: bool
    step: Step
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
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

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

    def _of_bar(self, key: str, found: Step | Note) -> Step | Note:
        """What a dict says belongs to the bar before it."""
        seen = self._seen.get(key)
        if seen is not None and found.step is None:
            found.step = seen.n
        return found

    def drawn(self, key: str, found: Bar) -> Step | None:
        """A bar's step, None where it is drawn again or counts something else."""
        seen = self._seen.get(key)
        other = seen is not None and seen.of not in (found.of, seen.n)
        if not found.trains or (other and not found.named):
            return None
        if seen is not None and seen.n == found.n and seen.of == found.of:
            return None
        step = found.step
        if seen is not None and found.n > seen.n and found.elapsed_s - seen.elapsed_s >= COARSE_S:
            step.step_time_s = (found.elapsed_s - seen.elapsed_s) / (found.n - seen.n)
            step.steps = found.n - seen.n
        if self._clock_s is not None:
            step.at_s, step.reckoned = self._clock_s + found.elapsed_s, True
        self._seen[key] = _Seen(found.of, found.n, found.elapsed_s)
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
    elapsed_s = _seconds(found["elapsed"])
    if elapsed_s is None:
        return None
    words = found["words"]
    return Bar(
        int(found["n"]), int(found["of"]) if found["of"] != "?" else None, elapsed_s,
        not words or _TRAINS.match(words) is not None, bool(words),
        _with_numbers(Step("bar", int(found["n"])), found["rest"]),
        found.start(), found.end(),
    )  # fmt: skip


def plain(found: re.Match[bytes]) -> Bar:
    """The bar that `PLAIN` has found."""
    words, n, of, clock, shown = found.groups()[1:]
    elapsed_s = 0
    for part in clock.split(b":"):
        elapsed_s = elapsed_s * 60 + int(part)
    trains = words is None or _TRAINS.match(words.decode("ascii")) is not None
    step = Step("bar", int(n))
    if shown is not None:
        step = _with_numbers(step, shown.decode("ascii"))
    return Bar(int(n), int(of), elapsed_s, trains, words is not None, step, *found.span())


def _with_numbers(step: Step, shown: str) -> Step:
    """The step with what its bar shows: `loss=3.1, global_step=794.0`."""
    values: dict[str, float] = {}
    for part in shown.split(", ")[:64]:
        name, equals, said = part.partition("=")
        value = number(said) if equals else None
        if value is not None:
            values[name.replace("_", "").replace(" ", "").lower()] = value
    named = values.get("globalstep")
    step = fill(step, values)
    if named is not None and 0.0 <= named < 1e12:
        step.step = int(named)
    return step


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


def _seconds(clock: str) -> int | None:
    """ "13:55:57" or "00:10" in seconds."""
    parts = clock.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return total
