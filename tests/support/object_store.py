"""A local S3 server for tests: its process, its settings for Spark, and holds at one exact request."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "store" / "bin" / "python"
SERVER = Path(__file__).with_name("store_server.py")
BUCKET = "lake"
ACCESS_KEY, SECRET_KEY = "AKIATESTSTORE0000001", "secret-of-the-store-7f3a"
TIMEOUT_S = 600


@dataclass(frozen=True)
class ObjectStore:
    """A running server with one empty bucket."""

    url: str

    @property
    def conf(self) -> dict[str, str]:
        """Settings of Spark to reach it, without the login."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    @property
    def login(self) -> dict[str, str]:
        """The environment of a job that logs in."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    @property
    def options(self) -> dict[str, str]:
        """Settings of readers other than Spark."""
        return {
            **self.login,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    @contextmanager
    def holding(self, method: str, pattern: str, when: Literal["before", "after"] = "before") -> Iterator[None]:
        """Hold the first request of this kind until the block ends."""
        self._control("hold", method=method, pattern=pattern, when=when)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Let all held requests continue."""
        self._control("release")

    def await_held(self, timeout_s: float = 240) -> None:
        """Wait until a request is held."""
        assert self._control("await", timeout_s=timeout_s), "no request came to the hold"

    def read(self, path: str) -> bytes:
        """Return an object, by its bucket and key."""
        from pyarrow.fs import S3FileSystem

        host = self.url.removeprefix("http://")
        login = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        files = S3FileSystem(**login, endpoint_override=host, scheme="http", region="us-east-1")
        with files.open_input_stream(path) as stream:
            return bytes(stream.read())

    def requests(self) -> list[str]:
        """Return all requests, each with its method and path."""
        return list(self._control("requests"))

    def _control(self, order: str, **body: Any) -> Any:
        return _post(f"{self.url}/_control/{order}", body)


def _post(url: str, body: Mapping[str, Any]) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=TIMEOUT_S) as answer:
        return json.load(answer)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a server, and end it with the block."""
    if not PYTHON.is_file():
        pytest.fail(f"the S3 server is not installed: {PYTHON} is missing. Run `make test-cluster`.")
    server = subprocess.Popen([PYTHON, SERVER], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""})
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, "the S3 server did not start: its error is above"
        store = ObjectStore(f"http://127.0.0.1:{int(port)}")
        put = urllib.request.Request(f"{store.url}/{BUCKET}", method="PUT")
        urllib.request.urlopen(put, timeout=TIMEOUT_S).close()
        yield store
    finally:
        server.terminate()
        server.wait(30)
        if server.stdout:
            server.stdout.close()
