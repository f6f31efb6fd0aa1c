"""The proxy on real sockets, with a small server in Derby's place."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_db2cdc.sandbox.protocol.proxy import Shim

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
IBM_DB_ACCRDB = bytes.fromhex(RECORDED["ibm_db_accrdb"])
DERBY_ACCRDBRM = bytes.fromhex(RECORDED["derby_accrdbrm"])
FLAT_ACCRDBRM = bytes.fromhex(RECORDED["flat_accrdbrm"])
ROWS = bytes.fromhex("000cd00300010006241b0102")
TIMEOUT_S = 10.0


class Backend:
    """A server that keeps the connections it gets for the test to talk through."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def accept(self) -> socket.socket:
        connection, _ = self._listener.accept()
        connection.settimeout(TIMEOUT_S)
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def shim(backend: Backend) -> Iterator[Shim]:
    with Shim(backend.port, "SANDBOX") as shim:
        yield shim


def connect(shim: Shim) -> socket.socket:
    return socket.create_connection(("127.0.0.1", shim.port), TIMEOUT_S)


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := peer.recv(size - len(data))):
        data += piece
    return data


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.01)


def begun_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that run now and did not then; one of another test's may end meanwhile."""
    return set(threading.enumerate()) - before


def test_both_directions_are_rewritten_around_the_access(shim: Shim, backend: Backend) -> None:
    with connect(shim) as client, backend.accept() as server:
        client.sendall(IBM_DB_ACCRDB)
        assert b"DNC10010" in receive(server, len(IBM_DB_ACCRDB))
        server.sendall(DERBY_ACCRDBRM)
        assert receive(client, len(FLAT_ACCRDBRM)) == FLAT_ACCRDBRM


def test_second_access_on_one_connection_is_rewritten_too(shim: Shim, backend: Backend) -> None:
    with connect(shim) as client, backend.accept() as server:
        for _ in range(2):
            client.sendall(IBM_DB_ACCRDB)
            receive(server, len(IBM_DB_ACCRDB))
            server.sendall(DERBY_ACCRDBRM)
            assert receive(client, len(FLAT_ACCRDBRM)) == FLAT_ACCRDBRM
            server.sendall(ROWS)
            assert receive(client, len(ROWS)) == ROWS


def test_answer_in_single_bytes_is_put_together(shim: Shim, backend: Backend) -> None:
    with connect(shim) as client, backend.accept() as server:
        for byte in DERBY_ACCRDBRM:
            server.sendall(bytes([byte]))
        assert receive(client, len(FLAT_ACCRDBRM)) == FLAT_ACCRDBRM


@pytest.mark.parametrize("side", ["client", "server"])
def test_end_of_one_side_ends_the_other_and_all_threads(shim: Shim, backend: Backend, side: str) -> None:
    threads_before = set(threading.enumerate())
    with connect(shim) as client, backend.accept() as server:
        wait_until(lambda: shim.connection_count == 1)
        (client if side == "client" else server).close()
        assert receive(server if side == "client" else client, 1) == b""
    wait_until(lambda: shim.connection_count == 0)
    wait_until(lambda: not begun_since(threads_before))


def test_peer_without_drda_is_cut_off(shim: Shim, backend: Backend) -> None:
    with connect(shim) as client, backend.accept():
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert receive(client, 1) == b""


def test_client_is_turned_away_while_derby_is_down_and_served_after(shim: Shim, backend: Backend) -> None:
    backend.close()
    with connect(shim) as client:
        assert receive(client, 1) == b""
    following = Backend()
    shim.derby_port = following.port
    with connect(shim) as client, following.accept() as server:
        server.sendall(DERBY_ACCRDBRM)
        assert receive(client, len(FLAT_ACCRDBRM)) == FLAT_ACCRDBRM
    following.close()


def test_stop_ends_connections_and_threads(backend: Backend) -> None:
    threads_before = set(threading.enumerate())
    shim = Shim(backend.port, "SANDBOX").start()
    with connect(shim) as client, backend.accept():
        wait_until(lambda: shim.connection_count == 1)
        shim.stop()
        assert receive(client, 1) == b""
    assert not begun_since(threads_before)
    with pytest.raises(ConnectionRefusedError):
        connect(shim)


def test_only_the_loopback_interface_is_served(shim: Shim) -> None:
    assert shim.address[0] == "127.0.0.1"
