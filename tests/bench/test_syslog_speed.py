"""Lines a second that the syslog receiver takes and reads; what it drops is counted."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime

import pytest

from collectors.agent.counts import Counts
from collectors.central.hosts import Hosts
from collectors.central.syslog import SyslogSource
from collectors.central.syslog_lines import SyslogLines
from collectors.central.syslog_server import SyslogServer
from nodewarden.clock import SystemClock
from telemetry.settings import SyslogSettings

pytestmark = pytest.mark.bench

LINES, HOSTS, EVERY = 100_000, 1_000, 200  # every so many tells an Xid
ASKED_PER_S = 15_000  # datagrams: nothing slows down who sends them


def line(number: int) -> bytes:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    said = f"audit: type=1400 audit(1772027985.123:{number}): apparmor=ALLOWED operation=open"
    if number % EVERY == 0:
        said = f"NVRM: Xid (PCI:0000:{number % 64:02x}:00): 79, pid=1, GPU has fallen off the bus."
    return f"<4>1 {stamp} n{number % HOSTS:04d} kernel - - - {said}\n".encode()


def send_tcp(port: int, lines: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for at in range(0, len(lines), 50):
            sock.sendall(b"".join(lines[at : at + 50]))


def send_udp(port: int, lines: list[bytes]) -> None:
    begun_s = time.perf_counter()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for at, one in enumerate(lines):
            sock.sendto(one, ("127.0.0.1", port))
            if at % 100 == 99:
                time.sleep(max(0.0, begun_s + at / ASKED_PER_S - time.perf_counter()))


@pytest.mark.parametrize("send", [send_tcp, send_udp])
def test_lines_a_second(send: object) -> None:
    counts, clock = Counts(), SystemClock()
    server = SyslogServer(SyslogSettings(address="127.0.0.1:0"))
    source = SyslogSource(server, SyslogLines(UTC, HOSTS + 10), Hosts, 300.0, counts, clock)
    lines = [line(number) for number in range(LINES)]
    sender = threading.Thread(target=send, args=(server.port, lines))  # type: ignore[arg-type]
    begun_s = time.perf_counter()
    sender.start()
    events = 0
    while sender.is_alive() or server.counts()[1]:
        said = source.poll()
        events += len(said.records) if said is not None else 0
        time.sleep(0.001)
    took_s = time.perf_counter() - begun_s
    sender.join()
    last = source.finish()
    events += len(last.records) if last is not None else 0
    now, waiting, _ = server.counts()
    print(
        f"\n{send.__name__}: {now.taken / took_s:,.0f} lines/s read"  # type: ignore[attr-defined]
        f" of {LINES:,} sent; dropped {dict(now.dropped)}, by the kernel {now.kernel_dropped}"
    )
    assert 0 == waiting
    assert now.received.total() == now.taken + now.dropped.total()
    assert LINES >= now.received.total() + now.kernel_dropped >= LINES - 1
    if not now.kernel_dropped and not now.dropped:
        assert LINES // EVERY == events
    source.close()
