"""Named numbers of a log line, and which of them are the loss, the gradient norm, the time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from collectors.training.model import Step

FIELDS_MAX = 64
LINE_MAX = 8_192
_WORDS = frozenset({"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"})
_DROP = str.maketrans("", "", " _-\n\t")

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
    return name.translate(_DROP).lower()


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
            found[name.translate(_DROP).lower()] = float(value)
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


def fill(step: Step, found: Mapping[str, float]) -> Step:
    """Put the numbers where they belong.

    A gradient norm of exactly 0 beside a running step is how frameworks print one they did not
    collect, and a loss scale of -1 one that is not used: both are missing, not 0.
    """
    bad: list[str] = []
    step.loss = _finite(_first(found, LOSS), "loss", bad)
    if found.get("numberofnaniterations", 0.0) > 0.0 and "loss" not in bad:
        bad.append("loss")
    grad_norm = _first(found, GRAD_NORM)
    step.grad_norm = _finite(None if grad_norm == 0.0 else grad_norm, "grad_norm", bad)
    step.nonfinite = tuple(bad)
    step.step_time_s = _time_s(found)
    for name, unit in THROUGHPUT:
        if name in found:
            step.throughput = found[name] if math.isfinite(found[name]) else None
            step.throughput_unit = unit
            break
    for name, ours in MORE.items():
        if name in found and math.isfinite(found[name]):
            step.more[ours] = found[name]
    if step.more.get("loss_scale") == -1.0:
        del step.more["loss_scale"]
    return step


def _first(found: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    for name in names:
        if name in found:
            return found[name]
    return None


def _finite(value: float | None, name: str, bad: list[str]) -> float | None:
    if value is None or math.isfinite(value):
        return value
    bad.append(name)
    return None


def _time_s(found: Mapping[str, float]) -> float | None:
    """A finite time above zero."""
    in_ms, in_s = _first(found, STEP_MS), _first(found, STEP_S)
    time_s = round(in_ms / 1000.0, 9) if in_ms is not None else in_s
    return time_s if time_s is not None and math.isfinite(time_s) and time_s > 0.0 else None
