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


LOGS = {
    "NCCL INFO lines": lambda: INFO, "dated timer lines": lambda: TIMERS,
    "a step line in 40 lines": mixed, "step lines only": steps,
}  # fmt: skip


WHOLE = {
    "Megatron-LM": "megatron_gpt2_n64_pp64.out",
    "Megatron-DeepSpeed": "megds_gpt2_perf_n16_ds_on.out",
    "MLPerf, each step": "mlperf41_nvidia_gpt3_b200.log",
    "MLPerf, blocks of steps": "mlperf41_nvidia_llama2_70b_lora_128nodes.log",
    "MLPerf, MaxText": "mlperf41_google_tpu_v5p_4096_gpt3.log",
}


@pytest.mark.parametrize("name", LOGS)
def test_training_log_speed(name: str) -> None:
    show(name, LOGS[name]())


@pytest.mark.parametrize("name", WHOLE)
def test_the_speed_of_whole_logs(name: str) -> None:
    if not (CORPUS / WHOLE[name]).is_file():
        pytest.skip("the corpus is not beside this checkout")
    show(name, (CORPUS / WHOLE[name]).read_bytes())


def show(name: str, one: bytes) -> None:
    """One line; the best of three, other loads only ever add to it."""
    data = one * (SIZE // len(one))
    took_s, said = float("inf"), 0
    for _ in range(3):
        parser = TrainingParser("x.log")
        began_s, said = time.process_time(), 0
        for at in range(0, len(data), PIECE):
            said += sum(1 for _ in parser.feed(data[at : at + PIECE]))
        said += sum(1 for _ in parser.finish())
        took_s = min(took_s, time.process_time() - began_s)
    print(f"\n{name:<26} {len(data) / took_s / 1e6:>7.1f} MB per CPU second, {said} objects")
