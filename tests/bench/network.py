"""A network before the source: so many bytes a second come through it, over all connections together."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 65_536
BURST_S = 0.05


@dataclass
class Pace:
    """When the next bytes may pass."""

    bytes_per_s: float
    free_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int) -> None:
        """Wait until `count` bytes have passed."""
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic() - BURST_S) + count / self.bytes_per_s
            wait_s = self.free_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)


@contextmanager
def slow_network(port: int, bytes_per_s: float) -> Iterator[int]:
    """Yield the port of 127.0.0.1 through which `port` answers as slowly as that; requests are not held up."""
    pace = Pace(bytes_per_s)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, port, pace), daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, port: int, pace: Pace) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            source = socket.create_connection(("127.0.0.1", port))
            for one, other, at in ((client, source, None), (source, client, pace)):
                threading.Thread(target=_pass, args=(one, other, at), daemon=True).start()


def _pass(one: socket.socket, other: socket.socket, pace: Pace | None) -> None:
    with suppress(OSError):
        while data := one.recv(PIECE):
            if pace is not None:
                pace.take(len(data))
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
