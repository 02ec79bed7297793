"""Receives syslog over TCP and UDP in a thread of its own, into a bounded queue.

received = taken + dropped + waiting, also by sender. Nobody can fill the queue alone: when it is
half full, a sender's own lines in it are bounded.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from collectors.central.syslog_frames import Frames
from telemetry.addresses import host_port
from telemetry.errors import SettingsError, SourceUnavailable
from telemetry.settings import SyslogSettings

TURN_S = 0.2
READ_BYTES = 262_144
DATAGRAMS_MAX = 512  # of one turn
UDP_BUFFER_BYTES = 8 << 20
SENDERS_MAX = 20_000  # counted by name; the rest together
OTHERS = "others"
SHARE = 8  # of the queue that one sender may have once it is half full
_SO_RXQ_OVFL = 40  # Linux: how many datagrams the kernel dropped before this one


@dataclass(slots=True)
class Received:
    """What was counted; read it under the server's lock only.

    dropped_of       sender -> lines
    kernel_dropped   datagrams that never reached us
    refused          connections that were closed for others
    """

    received: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_of: Counter[str] = field(default_factory=Counter)
    kernel_dropped: int = 0
    refused: int = 0


class _Peer:
    __slots__ = ("frames", "overlong", "sender")

    def __init__(self, sender: str, line_max: int) -> None:
        self.sender, self.frames, self.overlong = sender, Frames(line_max), 0


class SyslogServer:
    """`start`, `take` often, `close`."""

    def __init__(self, settings: SyslogSettings) -> None:
        """Binds both sockets. Raises SettingsError where the address cannot be served."""
        self._settings = settings
        self._tcp, self._udp = _bound(settings.address)
        self.port = int(self._tcp.getsockname()[1])
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._counts = Received()
        self._peers: OrderedDict[socket.socket, _Peer] = OrderedDict()  # the silent ones first
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._tcp, selectors.EVENT_READ)
        self._selector.register(self._udp, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="syslog", daemon=True)
        self._is_closed = False

    def start(self) -> None:
        """Begin to receive; with as many files as we may have, for every connection is one."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._thread.start()

    def take(self, count: int) -> list[tuple[str, bytes]]:
        """At most `count` lines as (address of the sender, line), in the order of their coming.

        Raises SourceUnavailable where nobody receives any more.
        """
        if not self._is_closed and not self._thread.is_alive():
            raise SourceUnavailable("the syslog receiver's thread ended")
        with self._lock:
            taken = [self._queue.popleft() for _ in range(min(count, len(self._queue)))]
            self._counts.taken += len(taken)
            for sender, _ in taken:
                self._queued[sender] -= 1
                if not self._queued[sender]:
                    del self._queued[sender]
        return taken

    def counts(self) -> tuple[Received, int, int]:
        """A copy of what was counted, lines that wait, connections."""
        with self._lock:
            now = self._counts
            copy = Received(
                Counter(now.received), now.taken, Counter(now.dropped), Counter(now.dropped_of),
                now.kernel_dropped, now.refused,
            )  # fmt: skip
            return copy, len(self._queue), len(self._peers)

    def close(self) -> None:
        """Stop receiving; what waits can still be taken."""
        if self._is_closed:
            return
        self._stopping = self._is_closed = True
        if self._thread.is_alive():
            self._thread.join()
        for peer in list(self._peers):
            self._leave(peer)
        self._selector.close()
        self._tcp.close()
        self._udp.close()

    def drop(self, sender: str, reason: str, count: int = 1) -> None:
        """Count lines that were taken and could not be used as dropped instead."""
        with self._lock:
            self._counts.taken -= count
            self._drop(sender, reason, count)

    # -- in the thread

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(TURN_S):
                if key.fileobj is self._udp:
                    self._datagrams()
                elif key.fileobj is self._tcp:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._read(key.fileobj)

    def _datagrams(self) -> None:
        found: list[tuple[str, bytes]] = []
        overflow = 0
        for _ in range(DATAGRAMS_MAX):
            try:
                data, extra, _, address = self._udp.recvmsg(self._settings.line_max_bytes + 1, 64)
            except OSError:
                break  # empty, or an error of an earlier answer
            found.append((str(address[0]), data))
            for level, kind, value in extra:
                if level == socket.SOL_SOCKET and kind == _SO_RXQ_OVFL:
                    overflow = int.from_bytes(value, sys.byteorder)
        with self._lock:
            self._counts.kernel_dropped = max(self._counts.kernel_dropped, overflow)
            for sender, data in found:
                self._counts.received["udp"] += 1
                if len(data) > self._settings.line_max_bytes:
                    self._drop(sender, "long")
                else:
                    self._offer(sender, data.rstrip(b"\r\n\0"))

    def _accept(self) -> None:
        try:
            sock, address = self._tcp.accept()
        except OSError:  # it left already, or we have no file for it
            self._counts.refused += 1
            time.sleep(0.01)
            return
        sock.setblocking(False)
        if len(self._peers) >= self._settings.connections_max:
            self._counts.refused += 1
            self._leave(next(iter(self._peers)))
        self._peers[sock] = _Peer(str(address[0]), self._settings.line_max_bytes)
        self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, sock: socket.socket) -> None:
        peer = self._peers.get(sock)
        if peer is None:  # closed in this turn
            return
        try:
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(sock)
            return
        self._peers.move_to_end(sock)
        lines = list(peer.frames.feed(data))
        with self._lock:
            self._take_in(peer, lines)

    def _leave(self, sock: socket.socket) -> None:
        peer = self._peers.pop(sock)
        self._selector.unregister(sock)
        sock.close()
        rest = peer.frames.finish()
        with self._lock:
            self._take_in(peer, [rest] if rest else [])

    def _take_in(self, peer: _Peer, lines: list[bytes]) -> None:
        overlong = peer.frames.overlong - peer.overlong
        peer.overlong = peer.frames.overlong
        self._counts.received["tcp"] += len(lines) + overlong
        if overlong:
            self._drop(peer.sender, "long", overlong)
        for line in lines:
            self._offer(peer.sender, line)

    def _offer(self, sender: str, line: bytes) -> None:
        most = self._settings.queue_lines_max
        waiting = len(self._queue)
        greedy = waiting >= most // 2 and self._queued[sender] >= most // SHARE
        if waiting >= most or greedy:
            self._drop(sender, "queue")
            return
        self._queue.append((sender, line))
        self._queued[sender] += 1

    def _drop(self, sender: str, reason: str, count: int = 1) -> None:
        counts = self._counts
        counts.dropped[reason] += count
        known = sender in counts.dropped_of or len(counts.dropped_of) < SENDERS_MAX
        counts.dropped_of[sender if known else OTHERS] += count


def _bound(address: str) -> tuple[socket.socket, socket.socket]:
    place = host_port(address)
    if place is None:
        raise SettingsError(f"syslog.address: {address!r}: expected HOST:PORT, as 0.0.0.0:5514")
    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tcp, udp = socket.socket(family, socket.SOCK_STREAM), socket.socket(family, socket.SOCK_DGRAM)
    try:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UDP_BUFFER_BYTES)
        udp.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
        tcp.bind((host, port))
        udp.bind((host, tcp.getsockname()[1]))
        tcp.listen(1_024)
    except OSError as error:
        tcp.close()
        udp.close()
        raise SettingsError(f"syslog.address: {address}: {error}") from error
    tcp.setblocking(False)
    udp.setblocking(False)
    return tcp, udp
