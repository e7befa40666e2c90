"""An HTTP proxy that refuses, delays, and loses answers by a plan.

It is a process of its own because client libraries may hold the GIL until they have an answer.

    python failing_proxy.py PORT PLAN      the plan is JSON; prints its port, and at the end the rest of the plan
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Seconds by which a request is delayed.
DELAY = 0.2


class _Proxy(ThreadingHTTPServer):
    """Each entry of the plan applies once, to the first request that matches it."""

    daemon_threads = True

    def __init__(self, port: int, plan: list[list[str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.plan = plan
        self.lock = threading.Lock()

    def what_for(self, request: str) -> str:
        with self.lock:
            matched = next((entry for entry in self.plan if re.search(entry[1], request)), None)
            if matched is None:
                return ""
            self.plan.remove(matched)
            return matched[0]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def pass_on(self) -> None:
        body = self._body()
        what = self.server.what_for(f"{self.command} {self.path}")
        if what == "refuse":
            self._answer(503, {}, b"<Error><Code>SlowDown</Code><Message>Slow down</Message></Error>")
            return
        if what == "delay":
            time.sleep(DELAY)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        hops = ("connection", "transfer-encoding", "content-length", "expect")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in hops}
        upstream.request(self.command, self.path, body=body, headers=headers)
        response = upstream.getresponse()
        answer = response.read()
        upstream.close()
        if what == "lose":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(response.status, dict(response.getheaders()), answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815 - as the library wants it

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing."""


class FailingProxy:
    """The proxy's URL; ``left`` is the rest of the plan once it has stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        self.left: list[list[str]] = []
        self._process = process

    def stop(self) -> None:
        """Stop answering."""
        if self._process.poll() is None:
            self.left = json.loads(self._process.communicate()[0])


@contextmanager
def failing_proxy(port: int, plan: list[tuple[str, str]]) -> Iterator[FailingProxy]:
    """Run a proxy in front of this port. Entries of the plan are ``refuse``, ``delay`` or ``lose``, and a pattern."""
    command = [sys.executable, __file__, str(port), json.dumps(plan)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        proxy = FailingProxy(process)
        try:
            yield proxy
        finally:
            proxy.stop()


def main() -> None:
    """Run until standard input ends."""
    server = _Proxy(int(sys.argv[1]), json.loads(sys.argv[2]))
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    print(json.dumps(server.plan))


if __name__ == "__main__":
    main()
