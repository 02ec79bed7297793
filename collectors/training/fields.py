"""Named numbers of a log line, and which of them are the loss, the gradient norm, the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

from collectors.training.model import Step

FIELDS_MAX = 64
LINE_MAX = 8_192
_WORDS = frozenset({"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"})

# Names without blanks, dashes and underscores, in lower case; the first that is there counts.
LOSS = ("lmloss", "reducedtrainloss", "trainloss", "train/loss", "loss",
        "lossmetrics/globalavgloss", "lmlosstraining/lmloss", "training/loss", "nllloss",
        "mlmloss", "totalloss")  # fmt: skip
GRAD_NORM = ("gradnorm", "train/gradnorm", "gradientnorm", "gradnormtraining/gradnorm",
             "training/gradnorm")  # fmt: skip
STEP_MS = ("elapsedtimeperiteration(ms)", "iterationtime(ms)")
STEP_S = ("elapsedtimeperiteration(s)", "trainsteptimingins", "traintimingins", "itime", "steptime",
          "iterationtime", "timemetrics/endtoend(s)", "train/steptime",
          "iterationtime/iterationtime")  # fmt: skip
THROUGHPUT = (
    ("throughputpergpu(tflop/s/gpu)", "TFLOP/s/GPU"), ("tflops", "TFLOP/s/GPU"),
    ("tps", "tokens/s"), ("throughput(tps)", "tokens/s"), ("tokens/sec", "tokens/s"),
    ("samplespersecond", "samples/s"), ("currsamplespersec", "samples/s"),
    ("throughput", "samples/s"),
)  # fmt: skip
MORE = {
    "consumedsamples": "consumed_samples", "consumedtokens": "consumed_tokens",
    "learningrate": "learning_rate", "lr": "learning_rate",
    "globalbatchsize": "global_batch_size", "lossscale": "loss_scale",
    "numberofskippediterations": "skipped", "numberofnaniterations": "nan_iterations",
    "samplespersecond": "samples_per_s", "tflops": "tflops_per_gpu", "mfu": "mfu_percent",
    "tps": "tokens_per_s", "numzeros": "zeros", "actualseqlen": "sequence_length",
    "epoch": "epoch", "valloss": "validation_loss", "rtime": "data_time_s",
    "loadbalancingloss": "load_balancing_loss",
}  # fmt: skip


def squeezed(name: str) -> str:
    """A name as the tables here write it: it may have been wrapped or spelt with dashes."""
    return name.replace(" ", "").replace("_", "").replace("-", "").lower()


def number(text: str) -> float | None:
    """A number as logs print it: "1.2E-01", "10,050", "nan", "13.99%"; None for other words."""
    words = text.strip().removesuffix("%").replace(",", "")
    if "_" in words or len(words) > 40:
        return None
    try:
        return float(words)
    except ValueError:
        return None


def piped(text: str) -> dict[str, float]:
    """`name: number | name: number |` by squeezed name; what is no such pair is left out."""
    found: dict[str, float] = {}
    for part in text[:LINE_MAX].split("|", FIELDS_MAX)[:FIELDS_MAX]:
        name, colon, value = part.rpartition(":")
        if not colon:
            continue
        try:
            found[squeezed(name)] = float(value)
        except ValueError:
            continue
    return found


def numbers(pairs: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """The numbers of decoded JSON, by squeezed name; texts "NaN" and "Infinity" are numbers."""
    found: dict[str, float] = {}
    for name, value in pairs:
        if len(found) >= FIELDS_MAX * 4:
            break
        if isinstance(value, str):
            said = number(value) if value in _WORDS else None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            said = _float(value)
        else:
            said = None
        if said is not None:
            found[squeezed(str(name))] = said
    return found


def _float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class Plan:
    """Which of a line's fields is what; "" where none is."""

    loss: str
    grad_norm: str
    ms: str
    seconds: str
    throughput: str
    unit: str
    more: tuple[tuple[str, str], ...]


@lru_cache(maxsize=256)
def plan_of(names: tuple[str, ...]) -> Plan:
    """The plan for fields of these squeezed names."""
    throughput = next(((name, unit) for name, unit in THROUGHPUT if name in names), ("", ""))
    return Plan(
        _named(names, LOSS), _named(names, GRAD_NORM), _named(names, STEP_MS),
        _named(names, STEP_S), *throughput,
        tuple((name, ours) for name, ours in MORE.items() if name in names),
    )  # fmt: skip


def _named(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    return next((name for name in wanted if name in names), "")


def fill(step: Step, found: Mapping[str, float], plan: Plan | None = None) -> Step:
    """Put the numbers where they belong.

    A gradient norm of exactly 0 beside a running step is how frameworks print one they did not
    collect, and a loss scale of -1 one that is not used: both are missing, not 0.
    """
    plan = plan_of(tuple(found)) if plan is None else plan
    bad: list[str] = []
    step.loss = _finite(found.get(plan.loss), "loss", bad)
    if found.get("numberofnaniterations", 0.0) > 0.0 and "loss" not in bad:
        bad.append("loss")
    grad_norm = found.get(plan.grad_norm)
    step.grad_norm = _finite(None if grad_norm == 0.0 else grad_norm, "grad_norm", bad)
    step.nonfinite = tuple(bad)
    step.step_time_s = _time_s(found.get(plan.ms), found.get(plan.seconds))
    throughput = found.get(plan.throughput)
    if throughput is not None:
        step.throughput = throughput if isfinite(throughput) else None
        step.throughput_unit = plan.unit
    step.more = {ours: value for name, ours in plan.more if isfinite(value := found[name])}
    if step.more.get("loss_scale") == -1.0:
        del step.more["loss_scale"]
    return step


def _finite(value: float | None, name: str, bad: list[str]) -> float | None:
    if value is None or isfinite(value):
        return value
    bad.append(name)
    return None


def _time_s(in_ms: float | None, in_s: float | None) -> float | None:
    """A finite time above zero."""
    time_s = round(in_ms / 1000.0, 9) if in_ms is not None else in_s
    return time_s if time_s is not None and isfinite(time_s) and time_s > 0.0 else None
