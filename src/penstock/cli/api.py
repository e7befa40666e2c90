"""The HTTP API as commands call it: one route, its answer as the API's own types.

With several URLs the request goes to the broker that serves: see ``penstock.hosts``.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from typing_extensions import override

from penstock.admin.resources.common import Code, Done, Problem
from penstock.admin.routes import BY_NAME, Route, path_part
from penstock.cli.errors import FAILED, NOT_ENOUGH, REFUSED, WRONG_USE, CommandError
from penstock.hosts import CONNECT_SECONDS, HostRing
from penstock.tls_errors import handshake_reason

DEFAULT_URL = "http://127.0.0.1:9180"
#: Seconds that an answer may take: longer than the longest query in SQL.
ANSWER_SECONDS = 90.0

#: The exit code of each problem; all others are failures.
CODES: dict[Code, int] = {
    "bad-request": WRONG_USE,
    "too-large": WRONG_USE,
    "unauthenticated": REFUSED,
    "denied": REFUSED,
    "conflict": REFUSED,
    "stale": REFUSED,
    "version-required": REFUSED,
    "too-many": REFUSED,
    "refused": REFUSED,
    "standby": REFUSED,
    "not-found": NOT_ENOUGH,
}

T = TypeVar("T")


class ApiError(CommandError):
    """The API refused a request, for the reason in ``problem``."""

    def __init__(self, problem: Problem, text: str, *more: str) -> None:
        super().__init__(text, *more, exit_code=CODES.get(problem.code, FAILED))
        self.problem = problem


class Tls(NamedTuple):
    """Files for TLS, and the name that the broker's certificate must have."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Raises CommandError for files that can't be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as error:
            raise CommandError(f"--ca, --certificate and --key are PEM files: {error}", exit_code=WRONG_USE) from None
        return context


class ApiAddress(NamedTuple):
    """The address of an API. ``path`` is that of a Unix-domain socket, or of a proxy in front of the API."""

    url: str
    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> ApiAddress:
        """Parse a URL. Raises CommandError."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise _not_an_address(url) from None
        if parts.scheme == "http+unix" and parts.path:
            return cls(url, "http+unix", "localhost", 80, parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise _not_an_address(url)
        return cls(url.rstrip("/"), parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def prefix(self) -> str:
        """What precedes the paths of the API."""
        return "" if self.scheme == "http+unix" else self.path


def _not_an_address(url: str) -> CommandError:
    text = f"--url {url!r} is not the address of an HTTP API"
    return CommandError(text, f"write it as {DEFAULT_URL}", exit_code=WRONG_USE)


class _Connection(http.client.HTTPConnection):
    """A connection over TCP, TLS or a Unix-domain socket. The certificate may be for a name other than the host's."""

    def __init__(self, address: ApiAddress, tls: Tls, timeout: float) -> None:
        super().__init__(address.host, address.port, timeout=timeout)
        self.default_port = 443 if address.scheme == "https" else 80
        self._address = address
        self._server_name = tls.server_name or address.host
        self._tls = tls.context() if address.scheme == "https" else None

    @override
    def connect(self) -> None:
        if self._address.scheme == "http+unix":
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._address.path)
            return
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


class Api:
    """The API of a broker, or of the one of several that serves, for one caller.

    Raises CommandError; a request that the API refuses is an ApiError.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str = "", tls: Tls | None = None) -> None:
        self._hosts = HostRing([ApiAddress.of(each) for each in re.split(",(?=http)", url)])
        self._token = token
        self._tls = tls or Tls()
        #: Of the last answer.
        self.headers: dict[str, str] = {}

    def ask(self, route: str, kind: type[T], *places: str, query: Any = None, body: Any = None, version: str = "") -> T:
        """Call one of the routes of ``admin.routes``. ``places`` are those of its path, in order."""
        headers = {"if-match": f'"{version}"'} if version else {}
        data = self.raw(route, *places, query=query, body=body, headers=headers)
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise self._not_ours(f"its answer is not understood: {error}") from None

    def forget(self, route: str, name: str) -> bool:
        """Call a route that removes something by name. False: there is none of this name."""
        try:
            return self.ask(route, Done, name).done
        except ApiError as error:
            if error.problem.code == "not-found":
                return False
            raise

    def raw(
        self, route: str, *places: str, query: Any = None, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Like ``ask``, but returns bytes. ``query`` and ``body`` are of the API's types; a body may also be bytes."""
        found = BY_NAME[route]
        sent = {**({"authorization": f"Bearer {self._token}"} if self._token else {}), **(headers or {})}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else None
        path = _path(found, places, query)
        failure: CommandError | None = None
        for address in self._hosts.in_order():
            try:
                connection = self._connect(address)
            except OSError as error:
                failure = failure or self._explained_loss(address, error, several=len(self._hosts) > 1)
                continue
            self._hosts.served(address)
            with closing(connection):
                status, answer = self._exchange(connection, found.method, address.prefix + path, data, sent)
            if status < 400:
                return answer
            failure = self._explained(found, status, answer)
            if not (isinstance(failure, ApiError) and failure.problem.code == "standby"):
                break
            self._hosts.failed()
        assert failure is not None
        raise failure

    def _connect(self, address: ApiAddress) -> _Connection:
        connection = _Connection(address, self._tls, ANSWER_SECONDS if len(self._hosts) == 1 else CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError:
            connection.close()
            raise
        connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _exchange(
        self, connection: _Connection, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, answer.read()
        except OSError as error:
            raise self._explained_loss(self._hosts.current, error) from None
        except http.client.HTTPException as error:
            raise self._not_ours(f"it does not speak HTTP as we do ({type(error).__name__})") from None
        except ValueError as error:
            raise CommandError(f"the token can't be sent: {error}", exit_code=WRONG_USE) from None

    # Failures

    def _explained_loss(self, address: ApiAddress, error: OSError, *, several: bool = False) -> CommandError:
        """Why there is no connection. ``several``: all hosts are being tried."""
        if isinstance(error, ssl.SSLError):
            hint = "--ca FILE names the authority to trust, --server-name the name in the certificate"
            return CommandError(f"{address.url}: {handshake_reason(error, 'broker')}", hint)
        if isinstance(error, TimeoutError) and not several:
            return CommandError(f"{address.url} has not answered for {ANSWER_SECONDS:.0f} s")
        urls = " and ".join(each.url for each in self._hosts.in_order())
        return CommandError(
            f"{urls} {'does' if len(self._hosts) == 1 else 'do'} not answer: {error.strerror or error}",
            "is the broker running, and is its HTTP on there? `penstock serve --http 127.0.0.1:9180` turns it on,",
            "pip install 'penstock[http]' brings what it needs; --url says where it is",
        )

    def _not_ours(self, reason: str) -> CommandError:
        return CommandError(
            f"{self._hosts.current.url} is not the HTTP API of a broker of this version: {reason}",
            "--url names the address behind --http of `penstock serve`",
        )

    def _explained(self, route: Route, status: int, answer: bytes) -> CommandError:
        try:
            problem = msgspec.json.decode(answer, type=Problem)
        except msgspec.MsgspecError:
            return self._not_ours(f"it answers with status {status} and no reason")
        where = f" ({problem.field})" if problem.field and problem.code == "bad-request" else ""
        return ApiError(problem, problem.detail + where, *self._next_step(route, problem))

    def _next_step(self, route: Route, problem: Problem) -> list[str]:
        if problem.code == "unauthenticated" and not self._token:
            return [
                "give a token with --token-file FILE or $PENSTOCK_TOKEN: the first one is printed on the terminal",
                "on which the broker starts, or in the file that its log names; `penstock token create` makes others",
            ]
        if problem.code == "unauthenticated":
            return ["an admin makes another one with `penstock token create`"]
        if problem.code == "denied":
            return [
                f"this takes a token with the right {route.needs}: `penstock token create NAME --may {route.needs}`"
            ]
        if problem.code == "stale":
            return ["it was changed meanwhile: look at it, and try again"]
        return []


def _path(route: Route, places: tuple[str, ...], query: Any) -> str:
    values = iter(places)
    parts = [path_part(next(values)) if part.startswith("{") else part for part in route.path.split("/")]
    return "/".join(parts) + _query_of(query)


def _query_of(query: Any) -> str:
    """The parameters that differ from their defaults."""
    if query is None:
        return ""
    usual = {each.name: each.default for each in msgspec.structs.fields(query)}
    values = {name: value for name, value in msgspec.structs.asdict(query).items() if value != usual[name]}
    return f"?{urlencode({name: _parameter(value) for name, value in values.items()})}" if values else ""


def _parameter(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def queue_of(name: str) -> tuple[str, str]:
    """Namespace and queue of a full name. Raises CommandError."""
    namespace, slash, queue = name.partition("/")
    if not (namespace and slash and queue):
        nearest = [f"did you mean default/{name}?"] if name and not slash else []
        raise CommandError(f"queues are named NAMESPACE/QUEUE, not {name!r}", *nearest, exit_code=WRONG_USE)
    return namespace, queue
