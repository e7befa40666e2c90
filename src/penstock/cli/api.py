"""The HTTP API as commands use it: where it is, who we are, a question, and its answer as the API's own types."""

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

import click
import msgspec

from penstock.admin.resources.common import Code, Problem
from penstock.admin.routes import BY_NAME, Route, path_part
from penstock.cli.errors import FAILED, NOT_ENOUGH, REFUSED, WRONG_USE, CommandError

DEFAULT_URL = "http://127.0.0.1:9180"
#: Seconds that an answer may take: longer than the longest query in SQL.
PATIENCE = 90.0
#: Seconds that a connection may take where another broker can be asked.
CONNECT_PATIENCE = 3.0

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
    """The API has refused. ``problem`` is its own word."""

    def __init__(self, problem: Problem, text: str, *more: str) -> None:
        super().__init__(text, *more, exit_code=CODES.get(problem.code, FAILED))
        self.problem = problem


# ------------------------------------------------------------------------------------------------------------- options


def _file() -> click.Path:
    return click.Path(exists=True, dir_okay=False, path_type=Path)


url_option = click.option(
    "--url",
    metavar="URL",
    envvar="PENSTOCK_URL",
    default=DEFAULT_URL,
    help=f"The broker's HTTP: http://HOST:PORT, https://HOST:PORT or http+unix:PATH; of several, with commas "
    f"between them, the one that serves. [default: {DEFAULT_URL}]",
)
#: Who we are, and whom we trust: the same for HTTP and for Flight.
identity_options = (
    click.option("--token", metavar="TOKEN", envvar="PENSTOCK_TOKEN", help="Our token; better in $PENSTOCK_TOKEN."),
    click.option("--token-file", type=_file(), metavar="FILE", help="The token is in this file."),
    click.option("--ca", type=_file(), metavar="FILE", help="Trust certificates of this authority (PEM)."),
    click.option("--certificate", type=_file(), metavar="FILE", help="Our own certificate (PEM)."),
    click.option("--key", type=_file(), metavar="FILE", help="Its key (PEM)."),
    click.option("--server-name", metavar="NAME", help="The name that the certificate must have."),
)


def with_options(command: Any, *options: Any) -> Any:
    """A command with these options, in this order."""
    for each in reversed(options):
        command = each(command)
    return command


def api_options(command: Any) -> Any:
    """Where the API is, and who we are: what ``Api.of`` takes."""
    return with_options(command, url_option, *identity_options)


def token_of(token: str | None, token_file: Path | None) -> str:
    """The token that was given, in one way or the other; empty for none. A file wins, as it was named."""
    if token_file is None:
        return (token or "").strip()
    found = token_file.read_text(errors="replace").strip()
    if not found:
        raise CommandError(
            f"--token-file {token_file} is empty: it has the token, and nothing else", exit_code=WRONG_USE
        )
    return found


# -------------------------------------------------------------------------------------------------------------- places


class Tls(NamedTuple):
    """Files and the name for TLS."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """What to talk through. Raises CommandError for files that are not what they should be."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as error:
            raise CommandError(f"--ca, --certificate and --key are PEM files: {error}", exit_code=WRONG_USE) from None
        return context


class ApiAddress(NamedTuple):
    """Where the API is. ``path`` is that of a Unix-domain socket, or of a proxy in front of the API."""

    url: str
    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> ApiAddress:
        """Raises CommandError for what is none."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise _no_place(url) from None
        if parts.scheme == "http+unix" and parts.path:
            return cls(url, "http+unix", "localhost", 0, parts.path)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise _no_place(url)
        return cls(url.rstrip("/"), parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def prefix(self) -> str:
        """What stands before the paths of the API."""
        return "" if self.scheme == "http+unix" else self.path

    def connection(self, tls: Tls, timeout: float) -> http.client.HTTPConnection:
        """To it; connected when it is used first."""
        if self.scheme == "http+unix":
            return _UnixConnection(self.path, timeout)
        if self.scheme == "https":
            return _TlsConnection(self.host, self.port, tls, timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


def _no_place(url: str) -> CommandError:
    return CommandError(
        f"--url {url!r} is not the address of an HTTP API", f"write it as {DEFAULT_URL}", exit_code=WRONG_USE
    )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self.timeout)
            connection.connect(self._path)
        except OSError:
            connection.close()
            raise
        self.sock = connection


class _TlsConnection(http.client.HTTPConnection):
    """Like that of the library, but the certificate may be for another name."""

    default_port = 443

    def __init__(self, host: str, port: int, tls: Tls, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls_context = tls.context()
        self._name = tls.server_name or host

    def connect(self) -> None:
        super().connect()
        self.sock = self._tls_context.wrap_socket(self.sock, server_hostname=self._name)


# ----------------------------------------------------------------------------------------------------------- questions


class Api:
    """The API of a broker, or of the one of several that serves, for one caller.

    Raises CommandError; what the API has refused is an ApiError.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str = "", tls: Tls | None = None) -> None:
        self._places = [ApiAddress.of(each) for each in re.split(",(?=http)", url)]
        #: The one that was connected to last.
        self.place = self._places[0]
        self._token = token
        self._tls = tls or Tls()
        #: Of the last answer.
        self.headers: dict[str, str] = {}

    @classmethod
    def of(cls, *, url: str, token: str | None, token_file: Path | None, **tls: Any) -> Api:
        """As the options say."""
        return cls(url, token_of(token, token_file), Tls(**tls))

    def ask(self, route: str, kind: type[T], *places: str, query: Any = None, body: Any = None, version: str = "") -> T:
        """Ask one of the routes of ``admin.routes``, and get its answer. ``places`` are those of its path, in order."""
        headers = {"if-match": f'"{version}"'} if version else {}
        data = self.raw(route, *places, query=query, body=body, headers=headers)
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise self._not_ours(f"its answer is not understood: {error}") from None

    def raw(
        self, route: str, *places: str, query: Any = None, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The same, as bytes. ``query`` and ``body`` are values of the API's types; a body may be bytes as well."""
        found = BY_NAME[route]
        sent = {**({"authorization": f"Bearer {self._token}"} if self._token else {}), **(headers or {})}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        data = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else None
        for _ in self._places:
            status, answer = self._request(found.method, self._path(found, places, query), data, sent)
            if status < 400:
                return answer
            problem = self._explained(found, status, answer)
            if not (isinstance(problem, ApiError) and problem.problem.code == "standby"):
                break
            self.place = self._places[(self._places.index(self.place) + 1) % len(self._places)]
        raise problem

    def _path(self, route: Route, places: tuple[str, ...], query: Any) -> str:
        values = iter(places)
        parts = [path_part(next(values)) if part.startswith("{") else part for part in route.path.split("/")]
        return "/".join(parts) + _query_of(query)

    def _connected(self) -> http.client.HTTPConnection:
        """A connection to the one that serves, beginning with the last one that did. Those that stand by refuse it."""
        first = self._places.index(self.place)
        for place in (*self._places[first:], *self._places[:first]):
            self.place = place
            connection = place.connection(self._tls, PATIENCE if len(self._places) == 1 else CONNECT_PATIENCE)
            try:
                connection.connect()
            except OSError as error:
                failed = error
            else:
                connection.sock.settimeout(PATIENCE)
                return connection
        raise failed

    def _request(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            with closing(self._connected()) as connection:
                connection.request(method, self.place.prefix + path, data, headers)
                answer = connection.getresponse()
                self.headers = {name.lower(): value for name, value in answer.getheaders()}
                return answer.status, answer.read()
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or str(error)
            raise CommandError(
                f"{self.place.url}: no TLS with it: {reason}",
                "--ca FILE names the authority to trust, --server-name the name in the certificate",
            ) from None
        except TimeoutError:
            raise CommandError(f"{self.place.url} has not answered for {PATIENCE:.0f} s") from None
        except OSError as error:
            raise self._nobody(error.strerror or str(error)) from None
        except http.client.HTTPException as error:
            raise self._not_ours(f"it does not speak HTTP as we do ({type(error).__name__})") from None
        except ValueError as error:
            raise CommandError(f"the token can't be sent: {error}", exit_code=WRONG_USE) from None

    # What went wrong

    def _nobody(self, reason: str) -> CommandError:
        alone = len(self._places) == 1
        return CommandError(
            f"{' and '.join(each.url for each in self._places)} {'does' if alone else 'do'} not answer: {reason}",
            "is the broker running, and is its HTTP on there? `penstock serve --http 127.0.0.1:9180` turns it on,",
            "pip install 'penstock[http]' brings what it needs; --url says where it is",
        )

    def _not_ours(self, reason: str) -> CommandError:
        return CommandError(
            f"{self.place.url} is not the HTTP API of a broker of this version: {reason}",
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
            return ["somebody has changed it meanwhile: look at it, and try again"]
        return []


def _query_of(query: Any) -> str:
    """The parameters that are not as they are anyway."""
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
