"""Faults of the job itself: hangs by phase, loss, gradients, pace. They accuse no node."""

from __future__ import annotations

from evaluation.fault_kinds import FIXED, Expect, FaultKind, Phase


def _hang(name: str, phase: Phase, text: str) -> FaultKind:
    return FaultKind(
        name=name, kind="job_hang", cause="unknown", expect="page", scope="job", levels=FIXED,
        job="hangs", phase=phase, text=text, run_s=7_500.0 if phase == "first" else 2_400.0,
    )  # fmt: skip


HANGS = (
    _hang("hang-init", "init", "the job restarts and never begins its first step"),
    _hang("hang-first", "first", "the job restarts and hangs in its first step"),
    _hang("hang-training", "", "the job hangs between two steps: no bytes, no tensor work"),
    _hang("hang-evaluation", "evaluation", "the job hangs in an evaluation"),
    _hang("hang-checkpoint", "checkpoint", "the job hangs while it writes a checkpoint"),
)


def _loss(name: str, text: str, expect: Expect = "page", **more: object) -> FaultKind:
    return FaultKind(
        name=name, kind="loss_anomaly", cause="unknown", expect=expect, scope="job", text=text,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


LOSSES = (
    _loss("nan", "the loss becomes NaN", nonfinite=True, levels=FIXED),
    _loss("loss-spike", "the loss is five times as high for 50 steps", loss=5.5, bad_steps=50,
          levels=(2.0, 1.0, 0.1)),
    _loss("loss-drift", "the loss creeps up and does not come back", drift=0.01,
          levels=(3.0, 1.0, 0.1), run_s=2_400.0),
    _loss("gradient-spike", "the gradient norm is seven times as high for 12 steps", norm=7.0,
          bad_steps=12, levels=(2.0, 1.0, 0.1)),
)  # fmt: skip

PACE = (
    FaultKind(name="usercode", kind="user_error", cause="user_code", expect="page", job="exits",
              levels=FIXED, scope="job", text="the job dies of a TypeError",
              failure=("user_code", "TypeError: unsupported operand type(s) for *: 'float' and"
                       " 'NoneType'")),
    FaultKind(name="mfu-decline", kind="job_slow", cause="unknown", expect="page", slow=1.25,
              levels=(2.0, 1.0, 0.2), told_causes=("user_code", "common_mode"), scope="job",
              slow_ramp_s=600.0, run_s=2_400.0, ranks="all",
              text="the same work takes longer and longer, on all nodes alike"),
)  # fmt: skip
