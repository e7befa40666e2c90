"""A real reverse proxy for tests: nginx, which terminates TLS and passes requests on.

``NGINX=/path`` names one; otherwise the one on the PATH is used. Without any, tests fail and say how to get one.
``python -m support.nginx`` installs Debian's, for root.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support import debian
from support.certificates import Certificate
from support.web import eventually

HOW = "install one (Debian: apt-get install nginx-light), or name one: NGINX=/path/to/nginx"
#: Debian installs it in a folder that is only on root's PATH.
_MORE = "/usr/sbin:/usr/local/sbin"
_CONFIGURATION = """\
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream broker {{ server {broker}; }}
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate.path};
    ssl_certificate_key {certificate.key};
    location / {{
      proxy_pass http://broker;
      {directives}
    }}
  }}
}}
"""


def named() -> str | None:
    """The nginx from ``NGINX``, or the installed one."""
    return os.environ.get("NGINX") or shutil.which("nginx") or shutil.which("nginx", path=_MORE)


@contextmanager
def terminating_tls(folder: Path, broker: str, certificate: Certificate, directives: str) -> Iterator[int]:
    """Run nginx in front of the HTTP process at host:port. ``directives`` set headers. Yields its port."""
    program = named()
    if program is None:
        pytest.fail(f"the tests of reverse proxies need an nginx: {HOW}", pytrace=False)
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = folder / "nginx.conf"
    file.write_text(
        _CONFIGURATION.format(folder=folder, broker=broker, port=port, certificate=certificate, directives=directives)
    )
    with open(folder / "log", "wb") as log:
        arguments = [program, "-p", str(folder), "-e", "stderr", "-c", str(file)]
        if os.geteuid() == 0:  # otherwise workers run as a user who cannot read our folders
            arguments += ["-g", "user root;"]
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        eventually(lambda: process.poll() is not None or _accepts(port))
        assert process.poll() is None, (folder / "log").read_text()
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def install() -> int:
    """Install nginx if there is none. Returns the exit code."""
    if not named():
        debian.install("nginx-light", "the tests of reverse proxies")
    if not named():
        print(f"set-up: no nginx, so the tests of reverse proxies will fail: {HOW}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(install())
