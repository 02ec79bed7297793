"""Captures around excerpts of real training logs: healthy steps by rule, then the excerpt as it is.

An excerpt begins where its trouble begins, and a detector that learns a job's pace from its past
would know nothing of it. So `HEALTHY` steps are put before it:

- each line is the excerpt's first iteration line (joined where it was wrapped; a later one where
  the first is the trouble itself) with its number, samples and tokens counted back, a step each;
- duration, loss and gradient norm are that line's times 1 + jitter x a normal number of a seeded
  generator, and printed rates follow the duration;
- the jitter is measured: the standard deviation of each quantity over its mean, among the first
  lines of the excerpt that are stated to be healthy. Fewer than three show none: then the duration
  has that of the steady steps of the loss-spike excerpt (0.4 %) and the curves 1 % and 10 %.

Where an excerpt leaps over thousands of steps (`filled`), each of them is put in: between two of
its lines the time a sample takes, the loss and the gradient norm change evenly, and the batch grows
in Megatron's steps of 16.

Such lines print no time, so `clock.json` says when the first of these steps began.
"""

from __future__ import annotations

import json
import random
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from collectors.capture import open_capture
from collectors.kinds import KINDS
from streams.replay import Outcome
from telemetry.settings import EngineSettings
from tests.folding import folded, numbered

DATA = Path(__file__).parent / "data" / "trainlog"
HEALTHY = 200
JOB = "bloom"
NODES = ("n1", "n2")
START_S = 1_650_000_000.0
STEADY = {"step_time_s": 0.004, "loss": 0.01, "grad_norm": 0.1}
COUNTED = re.compile(r"(iteration +|consumed (?:samples|tokens): +)(\d+)")
BATCH = re.compile(r"global batch size: +(\d+)")
TOKENS = re.compile(r"consumed tokens: +(\d+)")
SCALED = {
    "step_time_s": re.compile(r"(elapsed time per iteration \(m?s\): )([\d.]+)"),
    "loss": re.compile(r"(lm loss: )([\d.E+-]+)"),
    "grad_norm": re.compile(r"(grad norm: )([\d.]+)"),
    "rate": re.compile(r"((?:samples per second|TFLOPs): )([\d.]+)"),
}


@dataclass
class Excerpt:
    """A file of `tests/data/trainlog`, and what stands around it.

    healthy     its first iteration lines that show a healthy job
    model       which of its iteration lines is copied, 0 the first
    ends_s      when the last of the healthy steps ended, Unix seconds
    cut         it ends before this text, where another experiment begins
    filled      whether the steps that it leaps over are put in
    busy_s      so long after that both nodes' GPUs were still at 100 %; 0: no metrics
    """

    name: str
    healthy: int = 1
    model: int = 0
    ends_s: float = START_S
    busy_s: float = 0.0
    seed: int = 1
    cut: str = ""
    filled: bool = False
    durations: list[float] = field(default_factory=list)

    def text(self) -> str:
        """The excerpt."""
        text = (DATA / self.name).read_text("utf-8")
        text = text[: text.index(self.cut)] if self.cut else text
        return _filled(text) if self.filled else text

    def capture(self, path: Path, alone: bool = False) -> Path:
        """Write the capture; `alone` leaves the excerpt and what came with it out."""
        place = path / "training" / JOB
        place.mkdir(parents=True)
        lines = "".join(self.healthy_lines())
        text = lines if alone else f"{lines}\n{self.text()}"
        (place / "train.log").write_text(text, "utf-8")
        begin_s = self.ends_s - sum(self.durations)
        (place / "clock.json").write_text(json.dumps({"start": begin_s}), "utf-8")
        jobs = {"jobs": [{"id": JOB, "nodes": list(NODES), "gpus_per_node": 8, "start": begin_s}]}
        (path / "jobs.json").write_text(json.dumps(jobs), "utf-8")
        if self.busy_s and not alone:
            (path / "metrics").mkdir()
            (path / "metrics" / "gpu.om").write_text(self._busy(begin_s), "utf-8")
        return path

    def healthy_lines(self) -> list[str]:
        """The steps before the excerpt, oldest first."""
        template, jitter, rng = self._model_line(), self._jitter(), random.Random(self.seed)
        found = BATCH.search(template)
        batch = int(found[1]) if found else 1
        tokens = TOKENS.search(template)
        samples = re.search(r"consumed samples: +(\d+)", template)
        assert samples
        each = int(tokens[1]) / int(samples[1]) if tokens else 0.0
        usual_s = _seconds(template)
        lines = []
        self.durations = []
        for back in range(HEALTHY + self.model, self.model, -1):
            factors = {name: 1.0 + by * rng.gauss(0.0, 1.0) for name, by in jitter.items()}
            line = _counted_back(template, back, batch, each)
            for name, pattern in SCALED.items():
                factor = factors.get(name) or 1.0 / factors["step_time_s"]
                line = _scaled(pattern, line, factor)
            self.durations.append(usual_s * factors["step_time_s"])
            lines.append(line + "\n")
        return lines

    def _model_line(self) -> str:
        lines = self.text().splitlines()
        places = [at for at, line in enumerate(lines) if re.search(r"iteration +\d+/", line)]
        at = places[self.model]
        line = lines[at]
        for more in lines[at + 1 :]:
            if re.match(r"```|\[|time|Trace| *\.\.\.|\s*$", more) or "iteration  " in more:
                break
            line += more if more.startswith(" ") else f" {more}"
        return line

    def _jitter(self) -> dict[str, float]:
        found = list(KINDS["training"](self.name, [self.text().encode()]))
        steps = [one for one in found if one["type"] == "step"][: self.healthy]
        if len(steps) < 3:
            return STEADY
        columns = {name: [float(one[name]) for one in steps] for name in STEADY}
        return {
            name: statistics.stdev(column) / statistics.mean(column)
            for name, column in columns.items()
        }

    def _busy(self, begin_s: float) -> str:
        scrapes = range(int((self.ends_s + self.busy_s - begin_s) // 30))
        samples = [
            f'DCGM_FI_DEV_GPU_UTIL{{Hostname="{node}",gpu="0"}} 100 {begin_s + 30 * scrape}'
            for node in NODES
            for scrape in scrapes
        ]
        return "\n".join([*samples, "# EOF\n"])

    def replayed(self, path: Path, alone: bool = False) -> Outcome:
        """What the engine says of the capture."""
        with open_capture(self.capture(path, alone), EngineSettings(), "UTC") as capture:
            return folded(numbered((one.at or 0.0, one) for one in capture.records()))[1]


def _filled(text: str) -> str:
    """The excerpt with the steps that it leaps over."""
    lines: list[str] = []
    last: str | None = None
    for line in text.splitlines():
        if re.search(r"iteration +\d+/.*elapsed", line):
            lines += _between(last, line) if last is not None else []
            last = line
        lines.append(line)
    return "\n".join(lines) + "\n"


def _between(first: str, last: str) -> list[str]:
    names = {"step": r"(iteration +)(\d+)", "batch": r"(global batch size: +)(\d+)",
             "samples": r"(consumed samples: +)(\d+)", "tokens": r"(consumed tokens: +)(\d+)",
             **{name: pattern.pattern for name, pattern in SCALED.items()}}  # fmt: skip
    one, other = (
        {n: float(m[2]) for n, p in names.items() if (m := re.search(p, line))}
        for line in (first, last)
    )
    a_sample = [values["step_time_s"] / values["batch"] for values in (one, other)]
    a_token = (other["tokens"] - one["tokens"]) / (other["samples"] - one["samples"])
    count = int(other["step"] - one["step"])
    samples, lines = one["samples"], []
    for at in range(1, count):
        share = at / count
        now = {name: value + share * (other[name] - value) for name, value in one.items()}
        now["batch"] = 16 * round(now["batch"] / 16)
        now["step_time_s"] = now["batch"] * (a_sample[0] + share * (a_sample[1] - a_sample[0]))
        samples = min(samples + now["batch"], other["samples"] - 1)
        now["samples"] = samples
        now["tokens"] = one["tokens"] + a_token * (samples - one["samples"])
        line = first
        for name, pattern in names.items():
            if name in now:
                line = _written(pattern, line, now[name])
        lines.append(line)
    return lines


def _seconds(line: str) -> float:
    found = re.search(r"elapsed time per iteration \((m?s)\): ([\d.]+)", line)
    assert found
    return float(found[2]) / (1e3 if found[1] == "ms" else 1.0)


def _counted_back(line: str, back: int, batch: int, tokens: float) -> str:
    """The line of `back` steps before; `tokens` of a sample."""

    def number(found: re.Match[str]) -> str:
        by = 1 if found[1].startswith("iter") else batch
        by = round(batch * tokens) if "tokens" in found[1] else by
        return f"{found[1]}{max(0, int(found[2]) - by * back):{len(found[2])}d}"

    return COUNTED.sub(number, line)


def _scaled(pattern: re.Pattern[str], line: str, factor: float) -> str:
    return pattern.sub(lambda m: m[1] + _printed(m[2], float(m[2]) * factor), line)


def _written(pattern: str, line: str, value: float) -> str:
    return re.sub(pattern, lambda m: m[1] + _printed(m[2], value), line)


def _printed(like: str, value: float) -> str:
    """The number in the form of another."""
    if "E" in like:
        return f"{value:.6E}"
    return f"{value:.{len(like.partition('.')[2])}f}"
