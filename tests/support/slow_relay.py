"""A relay before a server, whose answers pass each connection at a limited rate, as from a slow source."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"
PIECE = 8192


class SlowRelay:
    """Passes on what clients and the server send."""

    def __init__(self, server_port: int, bytes_per_s: float) -> None:
        self._server_port = server_port
        self._bytes_per_s = bytes_per_s
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._sockets: list[socket.socket] = []
        self._clients: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return sum(client.fileno() >= 0 for client in self._clients)

    def close(self) -> None:
        """Close the listener and all connections."""
        for peer in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._server_port))
                self._sockets += [client, server]
                self._clients.append(client)
                for ends in ((client, server, 0.0), (server, client, self._bytes_per_s)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, bytes_per_s: float) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(PIECE):
                target.sendall(received)
                if bytes_per_s:
                    time.sleep(len(received) / bytes_per_s)
        for peer in (source, target):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()


@contextmanager
def slow_relay(server_port: int, bytes_per_s: float) -> Iterator[SlowRelay]:
    """Run a relay within the block."""
    relay = SlowRelay(server_port, bytes_per_s)
    try:
        yield relay
    finally:
        relay.close()
