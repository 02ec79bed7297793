"""MLPerf's `:::MLLOG` lines: training blocks, their time and throughput, evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import msgspec

from collectors.training.model import Note, Step
from collectors.training.plain_json import decoded

MARKER = ":::MLLOG"
START = b":::MLLOG "
LINE_MAX = 8_192
EXAMPLE = (
    ':::MLLOG {"time_ms": 1728497911432, "event_type": "POINT_IN_TIME", "key": "tracked_stats",'
    ' "value": {"train_step_timing in s": 35.986}, "metadata": {"step": 4194304}}'
)
_SAYS = frozenset(
    {"global_batch_size", "max_sequence_length", "submission_benchmark", "block_start",
     "block_stop", "tracked_stats", "train_loss", "eval_accuracy"}
)  # fmt: skip
_TIMING = "train_step_timing in s"


class _Line(msgspec.Struct):
    """A line as it should be; one that is otherwise is read as text."""

    time_ms: float
    key: str
    value: Any = None
    metadata: dict[str, Any] = {}


_DECODER = msgspec.json.Decoder(_Line)


class MlPerf:
    """One log. Progress is told in samples or tokens; a step takes `global_batch_size` samples of
    `max_sequence_length` tokens. Where that is not told, steps are counted."""

    def __init__(self) -> None:
        self._batch = 0
        self._length = 0
        self._counts_tokens = False
        self._timed = False  # each step is printed, blocks say nothing new
        self._counted = 0
        self._block_s: float | None = None
        self._block_from = 0
        self._block_count = 0

    def plain(self, data: bytes) -> Iterable[Step | Note] | None:
        """What an undamaged line says, given what follows its marker; None: read it as text."""
        if b"\r" in data or len(data) > LINE_MAX:
            return None
        try:
            line = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if line.key not in _SAYS:
            return ()
        if not _is_number(line.time_ms):
            return None
        return self._say(line.time_ms / 1000.0, line.key, line.value, line.metadata)

    def read(self, text: str) -> Iterator[Step | Note | str]:
        """What one line says; a reason in words where it is broken."""
        line = decoded(text[text.find(MARKER) + len(MARKER) :].strip())
        if not isinstance(line, dict):
            yield "MLLOG line that is no JSON object"
            return
        time_ms, key, value = line.get("time_ms"), line.get("key"), line.get("value")
        about = line.get("metadata")
        if not _is_number(time_ms) or not isinstance(key, str):
            yield "MLLOG line without time_ms or key"
            return
        about = about if isinstance(about, dict) else {}
        yield from self._say(time_ms / 1000.0, key, value, about)

    def _say(
        self, at_s: float, key: str, value: Any, about: dict[str, Any]
    ) -> Iterator[Step | Note]:
        if key == "global_batch_size" and _is_number(value):
            self._batch = int(value)
        elif key == "max_sequence_length" and _is_number(value):
            self._length = int(value)
        elif key == "submission_benchmark":
            self._counts_tokens = value == "gpt3"
        elif key == "block_start":
            self._block_s, self._block_from = at_s, _consumed(about) or 0
            self._block_count = _whole(about.get("epoch_count")) or 0
        elif key == "block_stop":
            yield from self._block(at_s, about)
        elif key == "tracked_stats" and isinstance(value, dict):
            yield from self._stats(at_s, value, about)
        elif key == "train_loss" and _is_number(value):
            yield _with_loss(Step("mlperf-loss", self._step(_consumed(about)), at_s), float(value))
        elif key == "eval_accuracy" and _is_number(value):
            yield Note("evaluation", at_s, self._step(_consumed(about)), apart=True,
                       more={"loss": float(value)})  # fmt: skip

    def _block(self, at_s: float, about: dict[str, Any]) -> Iterator[Step]:
        began_s, self._block_s = self._block_s, None
        if began_s is None or self._timed or at_s <= began_s:
            return
        if "samples_count" in about:
            done = _consumed(about) or 0
            count = done - self._block_from
        else:
            count, done = self._block_count, self._block_from + self._block_count
        steps, step = self._step(count), self._step(done)
        if steps is not None and steps > 0 and step is not None:
            yield Step("mlperf", step, at_s, step_time_s=(at_s - began_s) / steps, steps=steps,
                       more={"consumed": float(done)})  # fmt: skip

    def _stats(self, at_s: float, value: dict[str, Any], about: dict[str, Any]) -> Iterator[Step]:
        took_s, throughput = value.get(_TIMING), value.get("throughput")
        done = _consumed(about)
        more = {"consumed": float(done)} if done is not None else {}
        if _is_number(took_s) and took_s > 0.0:
            self._timed = True
            self._counted += 1
            yield Step("mlperf", self._counted, at_s, step_time_s=float(took_s), more=more)
        elif _is_number(throughput):
            step = self._counted or None if self._timed else self._step(done)
            yield Step("mlperf-stats", step, at_s, throughput=float(throughput),
                       throughput_unit="tokens/s" if self._counts_tokens else "samples/s",
                       more=more)  # fmt: skip

    def _step(self, consumed: int | None) -> int | None:
        size = self._batch * (self._length if self._counts_tokens else 1)
        return consumed // size if consumed is not None and size > 0 else None


def _with_loss(step: Step, loss: float) -> Step:
    if math.isfinite(loss):
        step.loss = loss
    else:
        step.nonfinite = ("loss",)
    return step


def _consumed(about: dict[str, Any]) -> int | None:
    for name in ("samples_count", "epoch_num", "step", "first_epoch_num"):
        if name in about:
            return _whole(about[name])
    return None


def _whole(value: Any) -> int | None:
    return int(value) if _is_number(value) and 0 <= value < 1e15 else None


def _is_number(value: Any) -> TypeGuard[float]:
    kind = type(value)  # no subclass comes out of JSON but bool
    return (kind is float or kind is int) and -1e18 < value < 1e18
