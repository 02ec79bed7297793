"""Step lines, a row a framework. A new framework is a row and its reader.

A reader takes one line without its prefix and gives what it says, None where the line is not of
its form after all, or a reason in words where it is of its form but broken. Readers are pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from collectors.training.fields import fill, number, numbers, piped
from collectors.training.model import Note, Step
from collectors.training.plain_json import decoded

Read = Callable[[str], "Step | Note | str | None"]


@dataclass(frozen=True, slots=True)
class Form:
    """One line form.

    marker   stands in every such line
    own      the line holds what ends a step by itself; otherwise it waits for its neighbours
    """

    name: str
    marker: str
    read: Read
    example: str
    source: str
    own: bool = True


_MEGATRON = re.compile(r"\biteration {1,40}(\d{1,12}) ?/ {0,40}(\d{1,12}) {0,8}\|")
_NEMO = re.compile(r"Training epoch \d{1,9}, iteration (\d{1,12})/(\d{1,12}|\?) \|")
_SAVED = re.compile(r"\s{0,8}successfully saved checkpoint (?:from|at) iteration {1,12}(\d{1,12})")
_EVALUATED = re.compile(
    r"\s{0,8}(?:validation|valid|test) loss at (?:the end of training for |iteration {1,12})"
    r"(?P<step>\d{1,12})?[^|]{0,80}\|"
)
_TITAN = re.compile(r"(?P<check>validate )?\bstep: {1,12}(\d[\d,]{0,15}) {1,4}loss: {1,12}\S")
_PAIR = re.compile(r"(\w{1,40}): {0,12}(nan|[-+]?inf|[-+]?[\d.,]{1,24}(?:[eE][-+]?\d{1,4})?)%?")
_LIGHTLY = re.compile(r"Train Step (\d{1,12})/(\d{1,12}) \|")
_SHARE = re.compile(r"Dataload: ([\d.]{1,8})%")
_PIPS = re.compile(r"; step (\d{1,12})/(\d{1,12}); ")
_PIPS_PAIR = re.compile(r"(\w{1,40}) (?:= )?(nan|-?inf|-?[\d.]{1,24})(?:;|$)")
_DEEPSPEED = re.compile(r"\] step=(\d{1,12}), skipped=(\d{1,12}), lr=\[")
_DEEPSPEED_TIMER = re.compile(r"/global_step=(\d{1,12}), ")
_OVERFLOW = re.compile(
    r"OVERFLOW! (?:Rank \d{1,7} )?[Ss]kipping step.{0,40}?"
    r"loss scale: ([\d.eE+-]{1,24}), reducing to ([\d.eE+-]{1,24})"
)
_GREYHOUND = re.compile(r"Esimated iteration time: \{")
_COMPUTED = re.compile(
    r"Computation result of rank (\d{1,7}) collected = \(Perf: .{0,200}?avg=([\d.]{1,24})"
)


def _megatron(text: str) -> Step | str | None:
    found = _MEGATRON.search(text, 0, 320)
    if found is None:
        return None
    values = piped(text[found.end() :])
    if not values:
        return "step line without a field"
    return fill(Step("megatron", int(found[1])), values)


def _nemo(text: str) -> Step | None:
    found = _NEMO.search(text, 0, 200)
    if found is None:
        return None
    values = piped(text[found.end() :])
    step = values.get("globalstep", float(found[1]))
    return fill(Step("nemo", int(step)), values) if 0.0 <= step < 1e12 else None


def _saved(text: str) -> Note | None:
    found = _SAVED.match(text)
    return Note("checkpoint", step=int(found[1])) if found is not None else None


def _evaluated(text: str) -> Note | None:
    found = _EVALUATED.match(text)
    if found is None:
        return None
    loss = piped(text[found.end() :]).get("lmlossvalue")
    step = int(found["step"]) if found["step"] is not None else None
    return Note("evaluation", step=step, more={"loss": loss})


def _titan(text: str) -> Step | Note | None:
    found = _TITAN.search(text, 0, 200)
    if found is None:
        return None
    number_said = int(found[2].replace(",", ""))
    pairs = ((name, number(value)) for name, value in _PAIR.findall(text[found.start(2) :][:2_048]))
    values = numbers((name, value) for name, value in pairs if value is not None)
    if found["check"] is not None:
        return Note("evaluation", step=number_said, more={"loss": values.get("loss")})
    step = fill(Step("torchtitan", number_said), values)
    if "tps" in values:
        step.throughput, step.throughput_unit = values["tps"], "tokens/s"
    return step


def _lightly(text: str) -> Step | None:
    found = _LIGHTLY.search(text, 0, 200)
    if found is None:
        return None
    step = fill(Step("lightly", int(found[1])), piped(text[found.end() :]))
    share = _SHARE.search(text[:1_024])
    if share is not None and (percent := number(share[1])) is not None:
        step.more["data_ratio"] = percent / 100.0
    return step


def _pips(text: str) -> Step | None:
    found = _PIPS.search(text, 0, 400)
    if found is None:
        return None
    values = {name: float(value) for name, value in _PIPS_PAIR.findall(text[found.end() :][:1_024])
              if number(value) is not None}  # fmt: skip
    return fill(Step("pips", int(found[1])), values)


def _deepspeed(text: str) -> Step | None:
    found = _DEEPSPEED.search(text, 0, 400)
    if found is None or int(found[1]) == 0:  # before the first step
        return None
    return Step("deepspeed", int(found[1]), more={"skipped_total": float(found[2])})


def _deepspeed_timer(text: str) -> Step | None:
    found = _DEEPSPEED_TIMER.search(text, 0, 400)
    if found is None:
        return None
    pairs = (part.partition("=") for part in text[found.end() :][:1_024].split(", "))
    values = numbers((name, number(value)) for name, _, value in pairs)
    return fill(Step("deepspeed", int(found[1])), values)


def _overflow(text: str) -> Note | None:
    found = _OVERFLOW.search(text)
    if found is None:
        return None
    return Note(
        "overflow", more={"loss_scale": number(found[1]), "next_loss_scale": number(found[2])}
    )


def _computed(text: str) -> Note | None:
    found = _COMPUTED.search(text, 0, 400)
    if found is None:
        return None
    return Note(
        "check", rank=int(found[1]), more={"what": "computation", "time_ms": number(found[2])}
    )


def _history(text: str) -> Step | str | None:
    """One row of a wandb run's history, as `scan_history` gives it or old clients stored it."""
    start = text.find("{")
    row = decoded(text[start:]) if start >= 0 else None
    if not isinstance(row, dict):
        return "history row that is no JSON object"
    values = numbers(row.items())
    if "step" not in values or not 0.0 <= values["step"] < 1e12:
        return None
    named = next((values[name] for name in ("train/globalstep", "iteration", "globalstep")
                  if name in values), values["step"])  # fmt: skip
    step = fill(Step("wandb", int(named) if 0.0 <= named < 1e12 else None), values)
    step.at_s = values.get("timestamp")
    return step


FORMS = (
    Form("nemo", "Training epoch", _nemo,
         "Training epoch 0, iteration 120/149 | lr: 3e-05 | global_step: 120 |"
         " reduced_train_loss: 1.233 | train_step_timing in s: 0.03146",
         "NVIDIA-BioNeMo/bionemo-recipes#740"),
    Form("megatron", "iteration", _megatron,
         " [2024-04-06 02:59:36] iteration       43/     100 | elapsed time per iteration (ms):"
         " 5444.9 | lm loss: 1.825991E+00 | grad norm: 1.426 |",
         "NVIDIA/Megatron-LM#756; forks print seconds, \"lm-loss\", TFLOPs, no date"),
    Form("checkpoint", "successfully saved checkpoint", _saved,
         "  successfully saved checkpoint from iteration  670250 to /checkpoints/phase2/",
         "NVIDIA/nvidia-resiliency-ext tests"),
    Form("evaluation", " loss at ", _evaluated,
         " validation loss at iteration 7000 | lm loss value: 7.174200E+00 |",
         "bigscience-workshop/bigscience tr8-104B-wide"),
    Form("torchtitan", "step: ", _titan,
         "step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050",
         "pytorch/torchtitan#2389"),
    Form("wandb", '"_step"', _history,
         '{"_step": 3, "_timestamp": 1651947964.5, "train/loss": 2.1}',
         "no real sample: field names from wandb's documentation"),
    Form("overflow", "OVERFLOW!", _overflow,
         "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32",
         "ymcui/Chinese-LLaMA-Alpaca#534"),
    Form("deepspeed", "] step=", _deepspeed,
         "[logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[1.2e-07], mom=[(0.9, 0.95)]",
         "microsoft/superbenchmark tests", own=False),
    Form("deepspeed-timer", "/global_step=", _deepspeed_timer,
         "epoch=0/micro_step=3/global_step=3, RunningAvgSamplesPerSec=291.6,"
         " CurrSamplesPerSec=291.6",
         "microsoft/superbenchmark tests", own=False),
    Form("lightly", "Train Step ", _lightly,
         "Train Step 1/10 | Train Loss: 32.8633 | Time Spent [Dataload: 64.5%]",
         "lightly-ai/lightly-train#604"),
    Form("pips", "; step ", _pips,
         "debug_15:30:12; step 000032/200000; rtime 210.16; itime 212.36; loss = 76.14967",
         "aharley/pips#17"),
    Form("computation-check", "Computation result of rank", _computed,
         "INFO:root:Computation result of rank 1 collected = (Perf: min=515.4, max=515.6,"
         " avg=515.5, std=0.0)!!",
         "wutianyuan1/Greyhound"),
)  # fmt: skip

GREYHOUND_EXAMPLE = (
    "INFO:root:[2025-05-04 14:20:55.103770] Esimated iteration time: {'rank0': 1126199.5,"
    " 'rank1': 1128187.5}"
)
_RANK_TIME = re.compile(r"'rank(\d{1,7})': ([\d.]{1,24})")


def rank_times(text: str) -> list[Step]:
    """Greyhound's estimates, one a rank, in microseconds; they name no step."""
    found = _GREYHOUND.search(text, 0, 200)
    if found is None:
        return []
    return [
        Step("greyhound", None, rank=int(rank), step_time_s=value / 1e6)
        for rank, said in _RANK_TIME.findall(text[found.end() :][:65_536])
        if (value := number(said)) is not None and value > 0.0
    ]


def is_step(text: str) -> bool:
    """Whether a line begins as Megatron's step lines do."""
    return "iteration" in text and _MEGATRON.search(text, 0, 320) is not None
