"""Writes the captures of the live tests: run it by hand when one of them has to change.

    python -m tests.data.make_captures_live

capture-ecn    congestion of one node's NIC in 15 s data, in a job that becomes slow
capture-mixed  a job that dies of its own code, later a GPU that falls off the bus
capture-gaps   a hot GPU seen through scrapes that fail, come late, come twice, and pause
"""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from evaluation.faults import parse_fault
from evaluation.simulator import START_S, Simulation
from evaluation.writers import write_capture

HERE = Path(__file__).parent
NODES, GPUS, INTERVAL_S = 8, 2, 15.0
LINE_PARTS = 3  # series, value, Unix seconds

Mangle = Callable[[Sequence[str]], Iterator[str]]


def unchanged(lines: Sequence[str]) -> Iterator[str]:
    """The lines as they are."""
    yield from lines


def gappy(lines: Sequence[str]) -> Iterator[str]:
    """Scrapes of a tired Prometheus; all series of one scrape of one node fare alike.

    2 % fail, 3 % are half an interval to two late, 2 % are said twice, once with another time.
    Of the fourth node ten minutes are missing.
    """
    times = [float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")]
    first_s = min(times, default=0.0)
    for line in lines:
        parts = line.rsplit(" ", 2)
        if line.startswith("#") or len(parts) != LINE_PARTS:
            yield line
            continue
        series, value, text = parts
        at_s = float(text)
        if 'Hostname="n003"' in series and 900.0 < at_s - first_s < 1_500.0:
            continue
        fate = random.Random(f"{series.partition('Hostname=')[2][:6]}{text}")
        dice = fate.random()
        if dice < 0.02:
            continue
        if 0.02 <= dice < 0.05:
            at_s = round(at_s + fate.uniform(0.5, 2.0) * INTERVAL_S, 3)
        yield f"{series} {value} {at_s}"
        if 0.05 <= dice < 0.07:
            yield f"{series} {value} {at_s}"
        if 0.06 <= dice < 0.07:
            yield f"{series} {value} {round(at_s + 1.5, 3)}"


def in_order(lines: Sequence[str]) -> Iterator[str]:
    """The lines of each series in the order of their times, as a dump has them."""
    block: list[tuple[float, str]] = []
    series = ""
    for line in lines:
        name = line.rsplit(" ", 2)[0]
        if name != series:
            yield from (text for _, text in sorted(block))
            block, series = [], name
        if line.startswith("#"):
            yield line
        else:
            block.append((float(line.rsplit(" ", 1)[1]), line))
    yield from (text for _, text in sorted(block))


def write(
    name: str, days: int, faults: Sequence[str], metrics: Sequence[str], minutes: float,
    mangle: Mangle = unchanged,
) -> None:  # fmt: skip
    """One capture of so many days earlier, its metrics and its training log packed."""
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    run = Simulation(
        NODES, GPUS, minutes=minutes, seed=3, faults=[parse_fault(text) for text in faults],
        start_s=START_S - 86_400.0 * days, gpu_interval_s=INTERVAL_S, nic_interval_s=INTERVAL_S,
    )  # fmt: skip
    write_capture(run, out, metrics=metrics)
    for file in sorted([*out.glob("metrics/*.om"), *out.glob("training/*/*.log")]):
        lines = file.read_text("utf-8").splitlines()
        if file.suffix == ".om":
            lines = list(in_order(list(mangle(lines))))
        packed = gzip.compress("".join(line + "\n" for line in lines).encode(), 9, mtime=0)
        file.with_name(file.name + ".gz").write_bytes(packed)
        file.unlink()


def main() -> None:
    """All three."""
    write(
        "capture-ecn", 0, ["ecn@n003+600"],
        ["nic_ecn_marked_packets_total", "gpu_tensor_active_ratio", "gpu_temperature_celsius"],
        35.0,
    )  # fmt: skip
    write(
        "capture-mixed", 1, ["usercode@n000+600", "xid79@n005+1500"],
        ["gpu_temperature_celsius"], 45.0,
    )  # fmt: skip
    write(
        "capture-gaps", 3, ["thermal@n006+700"],
        ["gpu_temperature_celsius", "gpu_sm_clock_mhz", "gpu_thermal_violation_us_total"], 40.0,
        gappy,
    )  # fmt: skip


if __name__ == "__main__":
    main()
