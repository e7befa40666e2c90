"""The ASGI application.

A request passes these steps and ends at the first that rejects it:

    route → Host, Origin (for changes) → caller → right → query and body → handler → audit log → response
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.admin.assets import POLICY, Asset
from penstock.admin.audit import Audit
from penstock.admin.connections import CONNECTION, UNAUTHENTICATED, HttpConnection
from penstock.admin.gatekeeper import Caller, Gatekeeper
from penstock.admin.http import BODY_BYTES, Handlers, Request, Response, match_path, parse_body, parse_query, split_path
from penstock.admin.origins import Origins
from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.reply import Reply, Send
from penstock.admin.routes import ROUTES, Route

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]

SAFE = ("GET", "HEAD", "OPTIONS")
#: Bytes of all bodies that are received or processed at a time; at least two of the largest publishes fit.
BODIES_BYTES = 256 * 2**20
#: Bytes of a body without a token: a login has the longest.
ANONYMOUS_BODY_BYTES = 8 * 1024


class App:
    """Serves all routes that have a handler."""

    def __init__(
        self,
        handlers: Handlers,
        gatekeeper: Gatekeeper,
        audit: Audit,
        report: Callable[[BaseException], None],
        origins: Origins,
        *,
        changed: Callable[[], None] = lambda: None,
        files: Mapping[str, Asset] | None = None,
        open_routes: tuple[str, ...] = (),
        largest_publish: int = 64 * 2**20,
    ) -> None:
        """``open_routes`` need no token; ``files`` are the console's, by path.

        ``report`` receives unexpected exceptions; ``changed`` is called after each successful change.
        """
        self._handlers = handlers
        self._gatekeeper = gatekeeper
        self._audit = audit
        self._report = report
        self._origins = origins
        self._changed = changed
        self._files = files or {}
        self._open = open_routes
        self._largest_publish = largest_publish
        self._bodies = _Bodies(max(BODIES_BYTES, 2 * largest_publish))
        self._anonymous_bodies = _Bodies(2 * UNAUTHENTICATED * ANONYMOUS_BODY_BYTES)
        self._routes = [(tuple(route.path.split("/")), route) for route in ROUTES if route.name in handlers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        reply = Reply(send, scope.get(CONNECTION), head=scope["method"] == "HEAD")
        try:
            reply.check_framing(headers)
            response = await self._respond(scope, headers, receive)
        except ClientGone:
            await scope[CONNECTION].end()
        except ApiProblem as error:
            await reply.problem(error.problem, error.retry_after)
        except MemoryError:
            await reply.problem(problem("refused", "not enough memory for this request; ask for less").problem)
        except Exception as error:
            self._report(error)
            await reply.problem(problem("internal", "an internal error, which the broker's log describes").problem)
        else:
            await reply.response(response)

    async def _respond(self, scope: Scope, headers: dict[str, str], receive: Receive) -> Response:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        parts = split_path(scope.get("raw_path") or scope["path"].encode())
        found = {
            route.method: (route, params)
            for pattern, route in self._routes
            if (params := match_path(pattern, parts)) is not None
        }
        if not found:
            return self._file(scope["path"], method, headers)
        if method not in found:
            fail("method-not-allowed", f"{scope['path']} accepts {', '.join(found)}, not {method}")
        route, params = found[method]
        self._check_origin(route, scope, headers)
        caller = await self._caller(route, scope, headers)
        try:
            if not self._is_open(route):
                _check_right(route, params, caller)
            with (self._bodies if caller.authenticated else self._anonymous_bodies).reserve() as grow:
                request = await self._read(route, params, scope, headers, receive, caller, grow)
                response = await self._handle(request, scope.get(CONNECTION))
        except ApiProblem as error:
            refusal = error
            if route.changes:
                self._write_audit(lambda: self._audit.record_refusal(route, params, caller, refusal))
            raise
        if route.changes:
            self._changed()
            self._write_audit(lambda: self._audit.record_change(route, params, caller, response))
        return response if response.status else response._replace(status=route.status)

    async def _handle(self, request: Request, connection: HttpConnection | None) -> Response:
        """Run the handler. If it changes nothing it is cancelled with the connection: a query may take a minute."""
        work = asyncio.ensure_future(self._handlers[request.route.name](request))
        if request.route.changes or connection is None:
            return await work
        gone = asyncio.create_task(connection.until_gone())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientGone
            return work.result()
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _write_audit(self, write: Callable[[], None]) -> None:
        """Write an audit entry. A failure is only reported: the change itself has been made or refused already."""
        try:
            write()
        except sqlite3.Error as error:
            self._report(error)

    def _is_open(self, route: Route) -> bool:
        return route.scope == "open" or route.name in self._open

    def _check_origin(self, route: Route, scope: Scope, headers: dict[str, str]) -> None:
        """Reject requests that a hostile page may have sent: it has no token, and may read open routes."""
        has_token = bool(headers.get("authorization", "").partition(" ")[2].strip())
        if route.name == "login" or not (self._is_open(route) or has_token):
            self._origins.check_host(headers)
        if route.method not in SAFE:
            self._origins.check_page(scope, headers)

    async def _caller(self, route: Route, scope: Scope, headers: dict[str, str]) -> Caller:
        address = self._origins.client_address(scope, headers)
        if self._is_open(route):
            return self._gatekeeper.anonymous(address)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if headers.get("authorization") and scheme.lower() != "bearer":
            fail("unauthenticated", "send the token as Authorization: Bearer …", field="header.Authorization")
        caller = await self._gatekeeper.caller(address, token.strip(), self._gatekeeper.cookie_in(headers))
        if caller.authenticated and CONNECTION in scope and not scope[CONNECTION].authenticate():
            fail("too-many", "all connections are busy; try again in a moment")
        return caller

    async def _read(
        self,
        route: Route,
        params: dict[str, str],
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        caller: Caller,
        grow: Callable[[int], None],
    ) -> Request:
        query = parse_query(scope["query_string"], route.query)
        largest = self._largest_publish if route.name == "publish" else BODY_BYTES
        data = await _body(receive, largest if caller.authenticated else ANONYMOUS_BODY_BYTES, grow)
        body: Any = None
        if route.body is not None:
            media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            if route.name == "import-definitions" and media in ("application/toml", "text/plain"):
                body = data
            elif media != "application/json":
                fail("unsupported-type", f"the body must be application/json, not {media}", field="header.Content-Type")
            else:
                body = parse_body(data, route.body)
        elif data:
            fail("bad-request", "this route accepts no body", field="body")
        return Request(route, params, query, body, headers, caller, lambda: self._caller(route, scope, headers))

    def _file(self, path: str, method: str, headers: dict[str, str]) -> Response:
        """A file of the console."""
        asset = self._files.get(path)
        if asset is None:
            fail("not-found", f"there is nothing at {path[:200]}", field="path")
        if method != "GET":
            fail("method-not-allowed", f"{path} accepts GET, not {method}")
        cached = headers.get("if-none-match") == asset.etag
        return Response(
            status=304 if cached else 200,
            body=b"" if cached else asset.body,
            media=asset.media_type,
            headers=(("etag", asset.etag), ("cache-control", "no-cache"), ("content-security-policy", POLICY)),
        )


class ClientGone(Exception):
    """The client has closed its connection, so there is no response."""


def _check_right(route: Route, params: Mapping[str, str], caller: Caller) -> None:
    """Without permission, the response does not reveal whether the resource exists."""
    role = route.needs
    if role is None:
        return
    if route.scope == "queue":
        allowed = caller.may(role, params["namespace"], params["queue"])
    elif route.scope == "namespace":
        allowed = caller.may_namespace(role, params["namespace"])
    elif route.scope == "all":
        allowed = caller.may_everywhere(role)
    else:
        allowed = caller.may_somewhere(role)
    if not allowed:
        where = {"queue": " for this queue", "namespace": " for this namespace", "all": " for all queues (*)"}
        fail("denied", f"this needs the right to {role}{where.get(route.scope, '')}")


class _Bodies:
    """A memory budget that all bodies share while they are received and processed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """Yields a function to call with the size of each part of a body. It raises ApiProblem over the limit."""
        own = 0

        def grow(size: int) -> None:
            nonlocal own
            own += size
            self._bytes += size
            if self._bytes > self._limit:
                fail("too-many", "all clients together are sending too much; try again in a moment", field="body")

        try:
            yield grow
        finally:
            self._bytes -= own


async def _body(receive: Receive, limit: int, grow: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            fail("bad-request", "the request is incomplete", field="body")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        grow(len(parts[-1]))
        if size > limit:
            fail("too-large", f"the body must have at most {limit} bytes", field="body")
        if not message.get("more_body"):
            return b"".join(parts)
