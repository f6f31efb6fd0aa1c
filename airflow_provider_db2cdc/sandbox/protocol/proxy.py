"""The TCP proxy between IBM's drivers and Derby; `drda` decides what is rewritten, this module moves bytes."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from airflow_provider_db2cdc.sandbox.protocol.drda import ClientStream, ServerStream
from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import rewrite_sql

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_BUFFER_BYTES = 1 << 18
_CONNECT_TIMEOUT_S = 10.0


class Shim:
    """Listen on 127.0.0.1 and forward each client's conversation to Derby.

    Each connection has two threads. When either side closes or dies, both sockets are closed and both threads end. If
    `derby_port` is changed, the next clients go there.
    """

    def __init__(self, derby_port: int, database: str, port: int = 0, create_database: bool = False) -> None:
        self.derby_port = derby_port
        self._rewrite_sql = functools.partial(rewrite_sql, database=database)
        self._create_database = create_database
        self._listener = socket.create_server((_HOST, port), backlog=128)
        self._address: tuple[str, int] = self._listener.getsockname()
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, name="shim-accept", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that clients connect to."""
        return self._address

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._address[1]

    @property
    def connection_count(self) -> int:
        """How many clients are connected now."""
        with self._lock:
            return len(self._connections)

    def start(self) -> Shim:
        """Accept clients from now on; returns at once."""
        self._accepting.start()
        return self

    def stop(self, timeout_s: float = 5.0) -> None:
        """Close the listener and all connections and wait for their threads, bounded."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() does not
        self._listener.close()
        self._accepting.join(timeout_s)
        self.drop_connections(timeout_s)

    def drop_connections(self, timeout_s: float = 5.0) -> None:
        """Close every connection, as a server that goes down does, and wait for the threads, bounded."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.join(timeout_s)

    def __enter__(self) -> Shim:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed: the only way this loop ends
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((_HOST, self.derby_port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            log.warning("derby does not answer, client refused: port=%s error=%s", self.derby_port, error)
            client.close()
            return
        server.settimeout(None)
        stream = ClientStream(self._rewrite_sql, self._create_database)
        connection = _Connection(client, server, stream, self._forget)
        with self._lock:
            self._connections.add(connection)
        connection.start()

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Connection:
    """One client's two sockets and the two threads that copy between them."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        stream: ClientStream,
        ended: Callable[[_Connection], None],
    ) -> None:
        self._client, self._server, self._stream, self._ended = client, server, stream, ended
        self._answers = ServerStream()
        self._first_end = threading.Semaphore()  # the thread that ends first takes it
        self._threads = [
            threading.Thread(target=self._run, args=(copy,), name=f"shim-{copy.__name__}", daemon=True)
            for copy in (self._client_to_server, self._server_to_client)
        ]
        for peer in (client, server):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for peer in (self._client, self._server):
            with contextlib.suppress(OSError):  # already closed by the other side
                peer.shutdown(socket.SHUT_RDWR)

    def join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self, copy: Callable[[], None]) -> None:
        try:
            copy()
        except OSError as error:
            log.debug("a peer went away: %s", error)
        except ValueError as error:
            log.warning("conversation ended: %s", error)
        finally:
            self.close()
            self._close_last()

    def _close_last(self) -> None:
        if self._first_end.acquire(blocking=False):
            return
        self._client.close()
        self._server.close()
        self._ended(self)

    def _client_to_server(self) -> None:
        while data := self._client.recv(_BUFFER_BYTES):
            rewritten = self._stream.feed(data)
            if self._stream.accessing:  # before it is sent: the answer may come at once
                self._stream.accessing = False
                self._answers = ServerStream(self._stream.cli)
            if rewritten:
                self._server.sendall(rewritten)

    def _server_to_client(self) -> None:
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        while size := self._server.recv_into(buffer):
            _acknowledge_at_once(self._server)
            answers = self._answers
            self._client.sendall(buffer[:size] if answers.raw else answers.feed(bytes(buffer[:size])))


def _acknowledge_at_once(peer: socket.socket) -> None:
    """Keep the kernel from delaying its acknowledgement by 40 ms.

    Derby writes a LOB locator's answer in two pieces and, having Nagle's algorithm on, holds the second one until the
    first is acknowledged. Linux forgets the option, so it is set after each read.
    """
    if hasattr(socket, "TCP_QUICKACK"):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
