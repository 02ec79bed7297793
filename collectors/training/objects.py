"""What a log said as objects of `parse training`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, tzinfo
from typing import Any

from collectors.training.model import Failure, Note, Said, Step
from collectors.training.parser import TrainingParser


def read_training(
    file: str, pieces: Iterable[bytes], tz: tzinfo = UTC
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The reader of `parse training`: steps, failures, notes in the order of the log."""
    parser = TrainingParser(file, tz)
    for piece in pieces:
        for said in parser.feed(piece):
            yield as_object(file, said)
    for said in parser.finish():
        yield as_object(file, said)


def as_object(file: str, said: Said) -> dict[str, Any]:
    """One flat object. A number that was NaN is null and named in "nonfinite"."""
    if isinstance(said, Step):
        return {"file": file, "type": "step", **_step(said)}
    if isinstance(said, Failure):
        return {"file": file, "type": "failure", **_failure(said)}
    if isinstance(said, Note):
        return {"file": file, "type": said.type, "at": said.at_s, "step": said.step,
                **({"rank": said.rank} if said.rank is not None else {}), **said.more}  # fmt: skip
    return {"file": file, "type": "rejected", "reason": said.reason, "text": said.text,
            "place": said.place}  # fmt: skip


def _step(step: Step) -> dict[str, Any]:
    return {
        "at": step.at_s, "rank": step.rank, "step": step.step, "step_time_s": step.step_time_s,
        "loss": step.loss, "grad_norm": step.grad_norm, "throughput": step.throughput,
        "throughput_unit": step.throughput_unit or None, "kind": step.kind, "steps": step.steps,
        "nonfinite": list(step.nonfinite), "form": step.form, "reckoned": step.reckoned,
        "repeat": step.repeat, "local_rank": step.local_rank, "host": step.host, **step.more,
    }  # fmt: skip


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "class": failure.class_, "rank": failure.rank, "text": failure.text, "at": failure.at_s,
        "detail": failure.detail, "role": failure.role, "local_rank": failure.local_rank,
        "host": failure.host, **failure.more,
    }  # fmt: skip
