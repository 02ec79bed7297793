"""How fast training logs are read. Printed, never asserted: machines differ."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collectors.training.parser import TrainingParser

DATA = Path(__file__).parents[1] / "data" / "trainlog"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "trainlog"
SIZE = 15_000_000
PIECE = 1 << 20

pytestmark = pytest.mark.bench

INFO = b"".join(
    b"node-%02d:39384%d:395082 [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM\n"
    % (at % 64, at % 10, at % 8, at % 32, at, at % 8, at + 1, (at + 1) % 8)
    for at in range(2_000)
)
TIMERS = b"".join(
    b"[2024-04-06 02:59:%02d,123] [INFO] [logging.py:96:log_dist] [Rank 0] rank=%d time (ms) |"
    b" forward: %.2f | backward: %.2f\n" % (at % 60, at, at * 1.1, at * 2.2)
    for at in range(300)
)


def steps() -> bytes:
    return (DATA / "megatron_2024_timestamp_tflops_mixtral.log").read_bytes()


def mixed() -> bytes:
    """A step line among 40 others."""
    return b"\n".join(INFO.split(b"\n")[:40]) + b"\n" + steps().split(b"\n")[0] + b"\n"


def bars() -> bytes:
    """A bar drawn 20,000 times in one line after carriage returns, a row after every 50th."""
    row = b"\n{'loss': 0.3290, 'reward': -2.0304, 'learning_rate': 5e-05}\n"
    return b"".join(
        b" %2d%%|%-38s| %d/20000 [%d:%02d:%02d<36:34:36, 10.13s/it]" % (
            at // 200, b"#" * (at // 527), at, at // 360, at // 6 % 60, at % 6 * 10)
        + (b"\r" if at % 50 else row)
        for at in range(20_000)
    )  # fmt: skip


def with_ranks() -> bytes:
    lines = (CORPUS / "torchtitan_8_ranks_duplicate_lines.log").read_bytes().splitlines(True)
    return b"".join(b"[rank%d]:" % at + line for at, line in enumerate(lines[:5]))


def titan(ranks: int) -> bytes:
    """What so many ranks print of each of 2,000 steps."""
    return b"".join(
        b"[titan] 2026-02-24 19:%02d:%02d,508 - root - INFO - step: %2d  loss: %8.5f  grad_norm:"
        b" %7.4f  memory: 66.91GiB(37.51%%)  tps: 10,0%02d  tflops: 314.%02d  mfu: 13.99%%\n"
        % (at // 60, at % 60, at, 9.0 - at / 400, at % 7 + 0.5, at % 100, at % 90 + rank)
        for at in range(2_000)
        for rank in range(ranks)
    )


LOGS = {
    "torchtitan, 1 rank prints": lambda: titan(1), "torchtitan, 8 print": lambda: titan(8),
    "NCCL INFO lines": lambda: INFO, "dated timer lines": lambda: TIMERS,
    "a step line in 40 lines": mixed, "step lines only": steps,
    "bars after CR": bars,
}  # fmt: skip


WHOLE = {
    "Megatron-LM": "megatron_gpt2_n64_pp64.out",
    "Megatron-DeepSpeed": "megds_gpt2_perf_n16_ds_on.out",
    "MLPerf, each step": "mlperf41_nvidia_gpt3_b200.log",
    "MLPerf, blocks of steps": "mlperf41_nvidia_llama2_70b_lora_128nodes.log",
    "MLPerf, MaxText": "mlperf41_google_tpu_v5p_4096_gpt3.log",
}

DIALECTS = {
    "torchtitan": "torchtitan_8_ranks_duplicate_lines.log",
    "torchtitan, coloured": "torchtitan_ansi_colour.log",
    "Trainer's rows": "hf_trainer_nan_then_zero_loss.log",
    "bars with rows": "hf_trainer_tqdm_glued_dict.log",
    "DeepSpeed's overflows": "deepspeed_overflow_hf_zero_loss.log",
    "NeMo": "nemo_progress_bar_no_steptime.log",
    "Greyhound, local": "greyhound_failslow_local_controller.log",
    "Greyhound, global": "greyhound_failslow_global_controller.log",
    "pdsh": "megatron_deepspeed_pdsh_host_prefix_tail.log",
    "DLRover": "dlrover_events_23min_step_and_ckpt.log",
    "lightly": "lightly_time_split_log.log",
    "pips": "dataloader_spike_210s_single_step.log",
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_the_speed_by_dialect(name: str) -> None:
    """Excerpts of real logs over and over: almost every line is one that says something."""
    if not (CORPUS / DIALECTS[name]).is_file():
        pytest.skip("the corpus is not beside this checkout")
    show(name, (CORPUS / DIALECTS[name]).read_bytes().rstrip(b"\n") + b"\n", size=5_000_000)


def test_the_speed_of_lines_with_ranks() -> None:
    if not (CORPUS / DIALECTS["torchtitan"]).is_file():
        pytest.skip("the corpus is not beside this checkout")
    show("torchtitan, 5 ranks", with_ranks(), size=5_000_000)


@pytest.mark.parametrize("name", LOGS)
def test_training_log_speed(name: str) -> None:
    show(name, LOGS[name]())


@pytest.mark.parametrize("name", WHOLE)
def test_the_speed_of_whole_logs(name: str) -> None:
    if not (CORPUS / WHOLE[name]).is_file():
        pytest.skip("the corpus is not beside this checkout")
    show(name, (CORPUS / WHOLE[name]).read_bytes())


def show(name: str, one: bytes, size: int = SIZE) -> None:
    """One line; the best of three, other loads only ever add to it."""
    data = one * (size // len(one))
    took_s, said = float("inf"), 0
    for _ in range(3):
        parser = TrainingParser("x.log")
        began_s, said = time.process_time(), 0
        for at in range(0, len(data), PIECE):
            said += sum(1 for _ in parser.feed(data[at : at + PIECE]))
        said += sum(1 for _ in parser.finish())
        took_s = min(took_s, time.process_time() - began_s)
    print(f"\n{name:<26} {len(data) / took_s / 1e6:>7.1f} MB per CPU second, {said} objects")
