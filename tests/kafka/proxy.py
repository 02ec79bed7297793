"""A TCP proxy before the broker that can hold answers back and cut connections."""

from __future__ import annotations

import contextlib
import socket
import threading

CHUNK_BYTES = 65_536


class Proxy:
    """Listens on `port` at once; forwards to 127.0.0.1:`target` from `open(target)` on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._target = 0
        self._answers = threading.Event()
        self._answers.set()
        self._refusing = False
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self.held_bytes = 0

    def open(self, target: int) -> None:
        """Accept and forward."""
        self._target = target
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_answers(self) -> None:
        """Requests still reach the broker, its answers stay here."""
        self.held_bytes = 0
        self._answers.clear()

    def cut(self) -> None:
        """Close all connections, with the answers held back; new ones work."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._answers.set()

    def refuse(self, refusing: bool) -> None:
        """While refusing, there is no broker."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._ends += [client, server]
            for source, sink, held in ((client, server, False), (server, client, True)):
                threading.Thread(
                    target=self._forward, args=(source, sink, held), daemon=True
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if answers and not self._answers.is_set():
                    self.held_bytes += len(data)
                    self._answers.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
