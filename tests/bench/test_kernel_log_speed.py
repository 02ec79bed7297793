"""How fast kernel logs are read. Printed, never asserted: machines differ."""

from __future__ import annotations

import random
import time

import pytest

from collectors.kernel.times import Clock
from collectors.kernel_log import KernelLog

LINES = 300_000
ORDINARY = (
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali{:08x}: link becomes ready",
    "docker0: port {}(veth{:07x}) entered blocking state",
    "device veth{:07x} entered promiscuous mode",
    'audit: type=1400 audit({}.{}): apparmor="ALLOWED" operation="open" pid={} comm="bash"',
    "perf: interrupt took too long ({} > 2500), lowering kernel.perf_event_max_sample_rate",
    "eth0: renamed from veth{:07x}",
    "clocksource: Long readout interval, skipping watchdog check: cs_nsec: {} wd_nsec: {}",
    "TCP: request_sock_TCP: Possible SYN flooding on port {}. Sending cookies.",
)
FORMS = {
    "dmesg iso": "2026-02-25T13:{m:02d}:{s:02d},123456+00:00 ",
    "dmesg": "[{at:12.6f}] ",
    "syslog": "Feb 25 13:{m:02d}:{s:02d} gpu-node-17 kernel: [{at:12.6f}] ",
    "/dev/kmsg": "6,{n},{n}0000,-;",
}
XID = "NVRM: Xid (PCI:0000:c3:00): 79, pid=1234, name=python3, GPU has fallen off the bus."

pytestmark = pytest.mark.bench


def log(before: str, messages: list[str], lines: int) -> bytes:
    return "".join(
        before.format(n=n, at=n / 100.0, m=n // 60 % 60, s=n % 60) + messages[n % 1_000] + "\n"
        for n in range(lines)
    ).encode()


def cpu_s(data: bytes) -> tuple[float, int]:
    start_s = time.process_time()
    said, reader = 0, KernelLog("x", Clock(year=2026))
    for at in range(0, len(data), 1 << 20):
        said += sum(1 for _ in reader.feed(data[at : at + (1 << 20)]))
    said += sum(1 for _ in reader.finish())
    return time.process_time() - start_s, said


@pytest.mark.parametrize("form", FORMS)
def test_ordinary_lines(form: str) -> None:
    draw = random.Random(1)
    messages = [
        draw.choice(ORDINARY).format(*(draw.randrange(10**5) for _ in range(4)))
        for _ in range(1_000)
    ]
    data = log(FORMS[form], messages, LINES)
    best_s, said = min(cpu_s(data) for _ in range(3))
    assert 0 == said
    speed, volume = LINES / best_s, len(data) / best_s / 1e6
    print(f"\nkernel log, {form}: {speed:,.0f} ordinary lines/s, {volume:.0f} MB/s")


def test_a_storm_of_xids() -> None:
    data = log(FORMS["dmesg iso"], [XID] * 1_000, 50_000)
    best_s, said = min(cpu_s(data) for _ in range(2))
    assert 50_000 == said
    print(f"\nkernel log, a storm: {said / best_s:,.0f} Xids/s")
