"""An S3 server on 127.0.0.1 with moto, in a Python that has moto. `support.object_store` starts it.

Writes come one at a time, so a conditional write is atomic as on S3. The path `/_control` holds requests: a test can so
stop a driver at one exact write, before or after the store has done it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

HOLD_TIMEOUT_S = 600
WRITES = ("PUT", "POST", "DELETE")
Environ = dict[str, Any]


class Hold:
    """Requests of one method whose path matches a pattern wait here, `before` or `after` they are done."""

    def __init__(self, method: str, pattern: str, when: str) -> None:
        self.method, self.pattern, self.when = method, re.compile(pattern), when
        self.reached, self.released = threading.Event(), threading.Event()

    def pause(self, environ: Environ, when: str) -> None:
        """Wait here if this is the first request of that kind."""
        is_this = (environ["REQUEST_METHOD"], when) == (self.method, self.when)
        if is_this and not self.reached.is_set() and self.pattern.search(environ["PATH_INFO"]):
            self.reached.set()
            self.released.wait(HOLD_TIMEOUT_S)


class Server:
    """moto's application, with writes in turn, a log of requests and holds."""

    def __init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.turn = threading.Lock()
        self.holds: list[Hold] = []
        self.requests: list[str] = []

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if environ["PATH_INFO"].startswith("/_control/"):
            return self.control(environ, start)
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        self.pause(environ, "before")
        if environ["REQUEST_METHOD"] not in WRITES:
            return list(self.app(environ, start))
        with self.turn:
            answer = list(self.app(environ, start))
        self.pause(environ, "after")
        return answer

    def pause(self, environ: Environ, when: str) -> None:
        """Wait at each hold that this request meets."""
        for hold in [*self.holds]:
            hold.pause(environ, when)

    def control(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        """Set, await or release holds, or list the requests."""
        order = environ["PATH_INFO"].rsplit("/", 1)[-1]
        body = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
        answer: Any = None
        match order:
            case "hold":
                self.holds.append(Hold(body["method"], body["pattern"], body["when"]))
            case "await":
                answer = self.holds[-1].reached.wait(body["timeout_s"])
            case "release":
                for hold in self.holds:
                    hold.released.set()
                self.holds.clear()
            case "requests":
                answer = [*self.requests]
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


class Quiet(WSGIRequestHandler):  # type: ignore[misc]
    """A handler that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Server(), threaded=True, request_handler=Quiet)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
