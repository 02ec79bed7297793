"""An exporter on the loopback that answers as it is told, and the trees that a kernel shows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from telemetry.metrics import CATALOGUE
from telemetry.records import Record, Rejected

Answer = Literal["text", "never", "drips", "huge", "junk", "error", "cut"]
HUGE_BYTES = 100_000_000
NAMES = [
    name for row in CATALOGUE if row.device == "gpu"
    for name in row.names if name.startswith("DCGM_FI_")
][:40]  # fmt: skip


def exposition(gpus: int = 8, metrics: int = 40, values: Mapping[str, str] | None = None) -> str:
    """What dcgm-exporter prints; `values` by name where they are not 1."""
    lines: list[str] = []
    for name in NAMES[:metrics]:
        lines += [f"# HELP {name} As DCGM has it.", f"# TYPE {name} gauge"]
        for gpu in range(gpus):
            labels = (
                f'gpu="{gpu}",UUID="GPU-{gpu:08d}",pci_bus_id="00000000:{gpu + 1:02X}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'
            )
            lines.append(f"{name}{{{labels}}} {(values or {}).get(name, '1')}")
    return "\n".join([*lines, ""])


class FakeExporter:
    """Listens until closed; `answer` and `text` may change while it runs."""

    def __init__(self) -> None:
        self.answer: Answer = "text"
        self.text = exposition()
        self.asked = 0
        self.most_at_once = 0
        self._now = 0
        self._ended = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/metrics"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        self.asked += 1
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            with connection:
                connection.recv(4_096)
                for piece in self._pieces():
                    connection.sendall(piece)
        except OSError:
            return  # the reader has left
        finally:
            self._now -= 1

    def _pieces(self) -> Iterator[bytes]:
        head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
        body = self.text.encode()
        if self.answer == "never":
            self._ended.wait(30.0)
        elif self.answer == "error":
            yield b"HTTP/1.0 503 Service Unavailable\r\n\r\n"
        elif self.answer == "junk":
            yield bytes(range(256)) * 64
        elif self.answer == "huge":
            yield head + b"\r\n"
            for _ in range(HUGE_BYTES // 1_000_000):
                yield b"# " + b"x" * 999_997 + b"\n"
        elif self.answer == "drips":
            for byte in head + b"\r\n" + body:
                yield bytes([byte])
                if self._ended.wait(0.05):
                    return
        elif self.answer == "cut":
            yield head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2]
        else:
            yield head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def fake_exporter() -> Iterator[FakeExporter]:
    exporter = FakeExporter()
    try:
        yield exporter
    finally:
        exporter.close()


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Small files under `root`, as sysfs and procfs have them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


class MemorySink:
    """Keeps what it was given; `hold` leaves everything under way."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.rejected: list[Rejected] = []
        self.hold = False
        self.closed = False
        self._safe = 0

    @property
    def safe(self) -> int:
        if not self.hold:
            self._safe = len(self.records)
        return self._safe

    def put(self, record: Record) -> int:
        self.records.append(record)
        return len(self.records)

    def resume(self, stream: tuple[str, str, float], seq: int) -> None:
        pass

    def reject(self, rejected: Rejected) -> None:
        self.rejected.append(rejected)

    def pump(self) -> None:
        pass

    def close(self, timeout_s: float) -> None:
        self.closed = True
