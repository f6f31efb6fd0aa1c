"""Db2's TLS port: certificates of a root, an intermediate and servers, and a proxy that speaks TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

V3 = {
    "root": "basicConstraints=critical,CA:TRUE",
    "middle": "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign",
    "own": "subjectAltName=IP:127.0.0.1,DNS:localhost",
    "other": "subjectAltName=DNS:db2.internal",
}
ISSUERS = {"root": "root", "middle": "root", "own": "middle", "other": "middle"}


def certificates(folder: Path) -> None:
    """Write `<name>.key` and `<name>.pem` for each: `own` is for 127.0.0.1, `other` for another host.

    It also writes `chain.pem` and `other-chain.pem`, which a server shows, and `middle-first.pem` and `root-first.pem`,
    which a client trusts.
    """
    for name, extension in V3.items():
        (folder / f"{name}.ext").write_text(extension)
        _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                 "-subj", f"/CN={name}")  # fmt: skip
        issuer = ISSUERS[name]
        signer = ("-key" if name == issuer else "-CAkey", f"{issuer}.key")
        by = ("-signkey", signer[1]) if name == issuer else ("-CA", f"{issuer}.pem", *signer, "-CAcreateserial")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem", "-days", "10",
                 "-extfile", f"{name}.ext")  # fmt: skip
    joined = {"chain": "own middle", "other-chain": "other middle", "middle-first": "middle root",
              "root-first": "root middle"}  # fmt: skip
    for name, parts in joined.items():
        texts = [(folder / f"{part}.pem").read_text() for part in parts.split()]
        (folder / f"{name}.pem").write_text("".join(texts))


@contextlib.contextmanager
def tls_port(target: int, chain: Path, key: Path) -> Iterator[int]:
    """Yield a port of 127.0.0.1 that speaks TLS and forwards what it receives to the port `target`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, target), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, context: ssl.SSLContext, target: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, context, target), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, target: int) -> None:
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(client, server_side=True) as here,
        socket.create_connection(("127.0.0.1", target)) as there,
    ):
        threading.Thread(target=_copy, args=(here, there), daemon=True).start()
        _copy(there, here)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
