"""The training log as Megatron-LM prints it, UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from evaluation.cluster import Cluster
from evaluation.incidentals import traceback_lines
from telemetry.records import Event, Steps

TRAIN_ITERATIONS = 50_000
GLOBAL_BATCH = 1_024
_CHECKPOINTS = "/checkpoints/pretrain"


def launch_text(cluster: Cluster, start_s: float) -> str:
    """What stands first."""
    stages = cluster.stages[-1] + 1
    return (
        f"using world size: {cluster.nodes * cluster.gpus},"
        f" tensor-model-parallel size: {cluster.gpus}, pipeline-model-parallel size: {stages}\n"
        "[before the start of training step] datetime:"
        f" {datetime.fromtimestamp(start_s, UTC):%Y-%m-%d %H:%M:%S} \n"
    )


def step_text(steps: Steps) -> str:
    """The line of one step, after the lines of what made it long."""
    number = steps.step[0]
    return _before(steps, number) + (
        f" [{_clock(steps.at)}] iteration {number:8d}/{TRAIN_ITERATIONS:8d} |"
        f" consumed samples: {number * GLOBAL_BATCH:12d} |"
        f" elapsed time per iteration (ms): {(steps.step_time_s[0] or 0.0) * 1000.0:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {steps.throughput[0]:.1f} |"
        " learning rate: 3.000000E-04 |"
        f" global batch size: {GLOBAL_BATCH:5d} |"
        f" lm loss: {_number(steps.loss[0], '.6E')} |"
        " loss scale: 1.0 |"
        f" grad norm: {_number(steps.grad_norm[0], '.3f')} |"
        " number of skipped iterations:   0 |"
        f" number of nan iterations: {int(steps.loss[0] is None):3d} |\n"
    )


def failure_text(event: Event) -> str:
    """A Python traceback with the rank before each line, as torch prints it."""
    rank = int(event.entity.removeprefix("rank:"))
    lines = "".join(f"{line}\n" for line in traceback_lines(rank, event.text))
    return f" [{_clock(event.at)}] training loop failed on rank {rank}\n{lines}"


def _before(steps: Steps, number: int) -> str:
    if steps.step_kind == "checkpoint":
        return (
            f"saving checkpoint at iteration {number - 1:7d} to {_CHECKPOINTS}"
            " in torch_dist format\n"
            f"  successfully saved checkpoint from iteration {number - 1:7d} to {_CHECKPOINTS}"
            " [ t 1/8, p 1/4 ]\n"
        )
    if steps.step_kind == "evaluation":
        return (
            f" validation loss at iteration {number - 1} | lm loss value:"
            f" {_number(steps.loss[0], '.6E')} | \n"
        )
    if steps.step_kind == "first" and number > 1:
        return (
            f"  successfully loaded checkpoint from {_CHECKPOINTS} [ t 1/8, p 1/4 ]"
            f" at iteration {number - 1}\n"
        )
    return ""


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


def _number(value: float | None, form: str) -> str:
    return "nan" if value is None else format(value, form)
