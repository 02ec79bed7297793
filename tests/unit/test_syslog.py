"""The syslog receiver: framing, whose line it is, bounds and conservation."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.central.hosts import Hosts
from collectors.central.syslog_frames import Frames
from collectors.central.syslog_lines import SyslogLines
from collectors.central.syslog_server import SyslogServer
from collectors.switch.forms import port_name
from telemetry.errors import SettingsError
from telemetry.records import Event, Rejected
from telemetry.settings import SyslogSettings

NOW_S = datetime(2026, 2, 25, 14, 0, tzinfo=UTC).timestamp()
XID = "NVRM: Xid (PCI:0000:c3:00): 79, pid=1, name=python, GPU has fallen off the bus."
RFC5424 = f"<3>1 2026-02-25T13:59:45.123Z n1 kernel - - - {XID}"
RFC3164 = f"<3>Feb 25 13:59:45 n1 kernel: [12.5] {XID}"
ISO = f"<3>2026-02-25T13:59:45+00:00 n1 kernel: {XID}"
EOS = (
    "<165>Feb 25 13:59:46 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface"
    " Ethernet28, changed state to down"
)
DEADLINE_S = 20.0


def events(
    *lines: str, hosts: Hosts | None = None, sender: str = "10.0.0.1", hosts_max: int = 100,
    wiring: dict[str, dict[str, tuple[str, str]]] | None = None, now_s: float = NOW_S,
) -> list[Event]:  # fmt: skip
    read = SyslogLines(UTC, hosts_max, wiring or {})
    if hosts is not None:
        read.rename(hosts)
    said = [*read.read([(sender, line.encode()) for line in lines], now_s)]
    said += read.settle(now_s, everything=True)
    return only_events(said)


def only_events(said: Iterable[Event | Rejected]) -> list[Event]:
    return [one for one in said if isinstance(one, Event)]


# -- framing


def octets(message: bytes) -> bytes:
    return b"%d %s" % (len(message), message)


@given(
    st.lists(st.tuples(st.booleans(), st.text("<>1 abc:", max_size=40)), max_size=8),
    st.lists(st.integers(1, 30), max_size=40),
)
def test_messages_come_out_as_they_went_in_however_cut_and_framed(
    said: list[tuple[bool, str]], cuts: list[int]
) -> None:
    messages = [f"<13>{text}x".encode() for _, text in said]
    stream = b"".join(
        octets(message) if counted else message + b"\n"
        for (counted, _), message in zip(said, messages, strict=True)
    )
    found: list[bytes] = []
    frames, at = Frames(200), 0
    for cut in [*cuts, len(stream)]:
        found += frames.feed(stream[at : at + cut])
        at += cut
    assert messages == found
    assert 0 == frames.size


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_cost_no_more_memory_than_a_line(pieces: list[bytes]) -> None:
    frames = Frames(100)
    for piece in pieces:
        assert all(len(message) <= 100 for message in frames.feed(piece))
        assert frames.size <= 100 + 8


@pytest.mark.parametrize("long", [b"<3>" + b"x" * 5_000 + b"\n", octets(b"<3>" + b"x" * 5_000)])
def test_a_message_that_is_too_long_is_counted_and_the_next_one_is_read(long: bytes) -> None:
    frames = Frames(1_000)
    found = [m for at in range(0, len(long), 700) for m in frames.feed(long[at : at + 700])]
    found += frames.feed(b"<3>after\n")
    assert ([b"<3>after"], 1) == (found, frames.overlong)


# -- whose line it is


@pytest.mark.parametrize("line", [RFC5424, RFC3164, ISO])
def test_a_kernel_line_is_its_hosts_at_its_own_time(line: str) -> None:
    (event,) = events(line)
    assert ("n1", "xid", 79) == (event.node, event.type, event.code)
    assert pytest.approx(NOW_S - 15.0, abs=0.2) == event.at


def test_the_inventory_knows_how_a_host_is_spelt_and_who_an_address_is() -> None:
    hosts = Hosts(frozenset({"gpu-n1", "gpu-n2"}), {"n1": "gpu-n1", "10.0.0.2": "gpu-n2"})
    assert ["gpu-n1"] == [e.node for e in events(RFC5424, hosts=hosts)]
    of_address = RFC5424.replace(" n1 ", " localhost ")
    assert ["gpu-n2"] == [e.node for e in events(of_address, hosts=hosts, sender="10.0.0.2")]


def test_without_an_inventory_it_is_the_messages_host_else_the_senders_address() -> None:
    assert ["n1"] == [e.node for e in events(RFC5424)]
    assert ["10.0.0.1"] == [e.node for e in events(RFC5424.replace(" n1 ", " - "))]


def test_a_switchs_line_is_of_the_node_behind_its_port() -> None:
    wiring = {"leaf1": {port_name("Et28"): ("n7", "mlx5_0/1")}}
    (event,) = events(EOS, wiring=wiring)
    assert ("n7", "switch", "link_down") == (event.node, event.source, event.class_)
    (event,) = events(EOS)  # nobody says who is behind it
    assert ("", "switch:leaf1/Ethernet28") == (event.node, event.entity)


def test_a_line_that_waits_for_others_is_told_when_its_host_is_quiet() -> None:
    read = SyslogLines(UTC, 10)
    bare = RFC5424.partition(", pid")[0]  # some drivers print the number alone first
    assert [] == list(read.read([("a", bare.encode())], NOW_S))
    assert [] == list(read.settle(NOW_S + 0.5))
    assert 1 == len(list(read.settle(NOW_S + 2.0)))
    assert [] == list(read.settle(NOW_S + 4.0))


# -- times


@pytest.mark.parametrize(
    ("line", "late_s"),
    [
        (RFC5424, 15.0),
        (RFC5424.replace("2026", "2031"), 0.0),  # from the future
        (RFC5424.replace("T13:59:45.123Z", "T11:07:00Z"), 10_380.0),  # a relay kept it
        (RFC3164.replace("13:59:45", "08:59:45"), 0.0),  # off by its zone
        (RFC3164.replace("Feb", "Dec"), 0.0),
        (f"<3>1 - n1 kernel - - - {XID}", 0.0),
    ],
)
def test_a_time_that_cannot_be_right_is_that_of_the_lines_coming(line: str, late_s: float) -> None:
    (event,) = events(line)
    assert pytest.approx(NOW_S - late_s, abs=0.2) == event.at


def test_one_hosts_wrong_year_does_not_move_the_next_lines() -> None:
    found = events(RFC5424.replace("2026", "2099"), RFC3164)
    assert [NOW_S, NOW_S - 15.0] == [round(e.at) for e in found]


# -- bounds


def test_made_up_hosts_are_bounded_and_nodes_are_always_heard() -> None:
    read = SyslogLines(UTC, 5)
    read.rename(Hosts(frozenset({"n1"})))
    made_up = [("evil", RFC5424.replace(" n1 ", f" h{i} ").encode()) for i in range(50)]
    found = [e.node for e in only_events(read.read([*made_up, ("x", RFC5424.encode())], NOW_S))]
    assert ("n1", 6) == (found[-1], len(found))
    assert {"evil": 45} == read.refused


@contextmanager
def serving(**settings: int) -> Iterator[SyslogServer]:
    server = SyslogServer(SyslogSettings(address="127.0.0.1:0", **settings))  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.close()


def received(server: SyslogServer, count: int) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while server.counts()[0].received.total() < count:
        assert time.monotonic() < until_s, server.counts()
        time.sleep(0.01)


def test_received_is_taken_and_dropped_and_waiting_of_every_sender() -> None:
    with serving(queue_lines_max=100) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as tcp:
            tcp.sendall(b"".join(b"<3>line %d\n" % i for i in range(400)))
            received(server, 400)
        counts, waiting, _ = server.counts()
        assert counts.received.total() == 400 == counts.dropped.total() + waiting
        assert {"127.0.0.1": counts.dropped["queue"]} == counts.dropped_of
        taken = server.take(1_000)
        assert [b"<3>line %d" % i for i in range(waiting)] == [line for _, line in taken]
        assert waiting == server.counts()[0].taken


def test_udp_and_tcp_are_one_queue_and_a_long_datagram_is_dropped() -> None:
    with serving(line_max_bytes=500) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"<3>one\n", ("127.0.0.1", server.port))
            udp.sendto(b"<3>" + b"x" * 600, ("127.0.0.1", server.port))
        with socket.create_connection(("127.0.0.1", server.port)) as tcp:
            tcp.sendall(octets(b"<3>two") + b"<3>cut off")
        received(server, 4)
        assert {b"<3>one", b"<3>two", b"<3>cut off"} == {line for _, line in server.take(9)}
        assert {"long": 1} == server.counts()[0].dropped


def test_one_connection_too_many_closes_the_one_that_was_silent_for_longest() -> None:
    with serving(connections_max=2) as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for number, sock in enumerate(socks):
            sock.sendall(b"<3>hello\n")
            received(server, number + 1)
        socks[0].sendall(b"<3>still here\n")
        received(server, 3)
        third = socket.create_connection(("127.0.0.1", server.port))
        third.sendall(b"<3>third\n")
        received(server, 4)
        assert b"" == socks[1].recv(1)
        assert 1 == server.counts()[0].refused
        for sock in (*socks, third):
            sock.close()


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:99999", "127.0.0.1:x"])
def test_a_wrong_address_is_one_line(address: str) -> None:
    with pytest.raises(SettingsError, match=r"syslog\.address"):
        SyslogServer(SyslogSettings(address=address))
