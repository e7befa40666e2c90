"""The ASGI application: finds the route, finds out who asks, reads the request, and tells every outcome.

A request goes through these steps, and ends at the first that says no:

    route → Host, Origin (for changes) → who asks → right → query and body → handler → audit log → answer
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec

from penstock.admin.access import Caller, Gatekeeper
from penstock.admin.assets import POLICY
from penstock.admin.audit import Audit
from penstock.admin.connections import CONNECTION, UNPROVEN, HttpConnection
from penstock.admin.http import (
    BODY_BYTES,
    Answer,
    Request,
    decoded_body,
    decoded_query,
    matched,
    split_path,
)
from penstock.admin.origins import Origins
from penstock.admin.problems import RETRY_AFTER, ApiProblem, fail, problem
from penstock.admin.resources.common import Problem
from penstock.admin.routes import ROUTES, Route

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[Request], Awaitable[Answer]]
#: A file of the console for a path: media type, ETag and bytes.
Files = Callable[[str], tuple[str, str, bytes] | None]

HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SAFE = ("GET", "HEAD", "OPTIONS")
#: Bytes that all bodies which are received or worked on may have together, or those of two of the largest, if more.
BODIES_BYTES = 256 * 2**20
#: Bytes of the body of a request that shows no token: a login has the longest.
UNPROVEN_BODY_BYTES = 8 * 1024


class App:
    """Serves all routes. ``handlers`` are by the names of the routes."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        gatekeeper: Gatekeeper,
        audit: Audit,
        report: Callable[[BaseException], None],
        origins: Origins,
        *,
        changed: Callable[[], None] = lambda: None,
        files: Files = lambda path: None,
        open_routes: tuple[str, ...] = (),
        largest_publish: int = 64 * 2**20,
    ) -> None:
        """``open_routes`` are told to everybody; ``files`` are the console's.

        ``report`` is told of faults, ``changed`` of every change that was made.
        """
        self._handlers = handlers
        self._gatekeeper = gatekeeper
        self._audit = audit
        self._report = report
        self._origins = origins
        self._changed = changed
        self._files = files
        self._open = open_routes
        self._largest_publish = largest_publish
        self._bodies = _Bodies(max(BODIES_BYTES, 2 * largest_publish))
        self._unproven_bodies = _Bodies(2 * UNPROVEN * UNPROVEN_BODY_BYTES)
        self._routes = [(tuple(route.path.split("/")), route) for route in ROUTES if route.name in handlers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        reply = _Reply(send, scope.get(CONNECTION), head=scope["method"] == "HEAD")
        try:
            reply.check_framing(headers)
            answer = await self._answer(scope, headers, receive)
        except ClientGone:
            await scope[CONNECTION].end()
        except ApiProblem as error:
            await reply.problem(error.problem, error.retry_after)
        except MemoryError:
            await reply.problem(problem("refused", "this needs more memory than there is: ask for less").problem)
        except Exception as error:
            self._report(error)
            await reply.problem(problem("internal", "a fault of the broker, which its log describes").problem)
        else:
            await reply.answer(answer)

    async def _answer(self, scope: Scope, headers: dict[str, str], receive: Receive) -> Answer:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        raw_path = scope.get("raw_path") or scope["path"].encode()
        parts = split_path(raw_path)
        found = [(route, places) for pattern, route in self._routes if (places := matched(pattern, parts)) is not None]
        if not found:
            return self._file(scope["path"], method, headers)
        chosen = next(((route, places) for route, places in found if route.method == method), None)
        if chosen is None:
            allowed = ", ".join(route.method for route, _ in found)
            fail("method-not-allowed", f"{scope['path']} takes {allowed}, not {method}")
        return await self._act(*chosen, scope, headers, receive)

    async def _act(
        self, route: Route, places: dict[str, str], scope: Scope, headers: dict[str, str], receive: Receive
    ) -> Answer:
        self._check_origin(route, scope, headers)
        caller = await self._caller(route, scope, headers)
        try:
            if route.name not in self._open:
                _check_right(route, places, caller)
            with (self._bodies if caller.shown else self._unproven_bodies).one() as grow:
                request = await self._read(route, places, scope, headers, receive, caller, grow)
                answer = await self._handled(request, scope.get(CONNECTION))
        except ApiProblem as error:
            refusal = error
            if route.changes:
                self._note(lambda: self._audit.refused(route, places, caller, refusal))
            raise
        if route.changes:
            self._changed()
            self._note(lambda: self._audit.done(route, places, caller, answer))
        return answer if answer.status else answer._replace(status=route.status)

    async def _handled(self, request: Request, connection: HttpConnection | None) -> Answer:
        """The answer. Work that changes nothing ends with the client's connection: a query may take a minute."""
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

    def _note(self, note: Callable[[], None]) -> None:
        """Write something into the audit log. It has happened, so a log that can't be written is no other answer."""
        try:
            note()
        except sqlite3.Error as error:
            self._report(error)

    def _check_origin(self, route: Route, scope: Scope, headers: dict[str, str]) -> None:
        """Raises ApiProblem for what a hostile page may have sent: it has no token, and may read open routes."""
        is_open = route.scope == "open" or route.name in self._open
        shows_token = bool(headers.get("authorization", "").partition(" ")[2].strip())
        if route.name == "login" or not (is_open or shows_token):
            self._origins.check_host(headers)
        if route.method not in SAFE:
            self._origins.check_page(scope, headers)

    async def _caller(self, route: Route, scope: Scope, headers: dict[str, str]) -> Caller:
        address = self._origins.client_address(scope, headers)
        if route.scope == "open" or route.name in self._open:
            return self._gatekeeper.nobody(address)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if headers.get("authorization") and scheme.lower() != "bearer":
            fail("unauthenticated", "a token is shown as Authorization: Bearer …", field="header.Authorization")
        caller = await self._gatekeeper.caller(address, token.strip(), self._gatekeeper.cookie_in(headers))
        if caller.shown and CONNECTION in scope and not scope[CONNECTION].prove():
            fail("too-many", "as many requests as can be are being worked on: try again in a moment")
        return caller

    async def _read(
        self,
        route: Route,
        places: dict[str, str],
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        caller: Caller,
        grow: Callable[[int], None],
    ) -> Request:
        query = decoded_query(scope["query_string"], route.query)
        largest = self._largest_publish if route.name == "publish" else BODY_BYTES
        largest = largest if caller.shown else UNPROVEN_BODY_BYTES
        data = await _body(receive, largest, grow)
        body: Any = None
        if route.body is not None:
            media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
            if route.name == "import-definitions" and media in ("application/toml", "text/plain"):
                body = data
            elif media != "application/json":
                fail("unsupported-type", f"the body is application/json, not {media}", field="header.Content-Type")
            else:
                body = decoded_body(data, route.body)
        elif data:
            fail("bad-request", "this path takes no body", field="body")
        return Request(route, places, query, body, headers, caller, lambda: self._caller(route, scope, headers))

    def _file(self, path: str, method: str, headers: dict[str, str]) -> Answer:
        """A file of the console."""
        found = self._files(path)
        if found is None:
            fail("not-found", f"there is nothing at {path[:200]}", field="path")
        if method != "GET":
            fail("method-not-allowed", f"{path} takes GET, not {method}")
        media, etag, body = found
        told = (("etag", etag), ("cache-control", "no-cache"), ("content-security-policy", POLICY))
        if headers.get("if-none-match") == etag:
            return Answer(status=304, body=b"", media=media, headers=told)
        return Answer(status=200, body=body, media=media, headers=told)


class ClientGone(Exception):
    """The client has closed its connection: nothing is answered."""


class _Reply:
    """Sends one answer."""

    def __init__(self, send: Send, connection: HttpConnection | None, *, head: bool) -> None:
        self._send = send
        self._connection = connection
        self._head = head
        self._last = False

    def check_framing(self, headers: Mapping[str, str]) -> None:
        """Raises ApiProblem for a body of two lengths: a proxy may go by the other one, so the connection ends here."""
        if "transfer-encoding" in headers and "content-length" in headers:
            self._last = True
            text = "a request has Content-Length or Transfer-Encoding, not both"
            fail("bad-request", text, field="header.Transfer-Encoding")

    async def problem(self, told: Problem, retry_after: int = RETRY_AFTER) -> None:
        """As RFC 9457 has it."""
        extra: list[tuple[str, str]] = []
        if told.status == 401:
            extra.append(("www-authenticate", 'Bearer realm="penstock"'))
        if self._last or (told.status == 413 and self._connection is not None and not self._connection.proven):
            extra.append(("connection", "close"))
        if told.status in (429, 503):
            extra.append(("retry-after", str(retry_after)))
        await self._whole(told.status, "application/problem+json", msgspec.json.encode(told), extra)

    async def answer(self, answer: Answer) -> None:
        """What a handler has made."""
        if answer.stream is not None:
            await self._stream(answer)
            return
        body = answer.body if answer.body is not None else msgspec.json.encode(answer.value)
        await self._whole(answer.status, answer.media, body, answer.headers)

    async def _whole(self, status: int, media: str, body: bytes, extra: Any) -> None:
        await self._start(status, media, [*extra, ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": b"" if self._head else body})

    async def _stream(self, answer: Answer) -> None:
        """Until it ends or the client goes: what is sent to one that has gone is thrown away without a word."""
        await self._start(answer.status, answer.media, answer.headers)
        if not self._head:
            tasks = [asyncio.create_task(self._pieces(answer))]
            if self._connection is not None:
                tasks.append(asyncio.create_task(self._connection.until_gone()))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(outcomes[0], Exception):
                raise outcomes[0]
        await self._send({"type": "http.response.body", "body": b""})

    async def _pieces(self, answer: Answer) -> None:
        assert answer.stream is not None
        async with aclosing(answer.stream) as pieces:
            async for piece in pieces:
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _start(self, status: int, media: str, extra: Any) -> None:
        headers = {**HEADERS, "content-type": media, **dict(extra)}
        lines = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": lines})


def _check_right(route: Route, places: Mapping[str, str], caller: Caller) -> None:
    """What the caller may not is answered in the same way whether it exists or not."""
    role = route.needs
    if role is None:
        return
    if route.scope == "queue":
        allowed = caller.may(role, places["namespace"], places["queue"])
    elif route.scope == "namespace":
        allowed = caller.may_namespace(role, places["namespace"])
    elif route.scope == "all":
        allowed = caller.may_everywhere(role)
    else:
        allowed = caller.may_somewhere(role)
    if not allowed:
        where = {"queue": " for this queue", "namespace": " for this namespace", "all": " for all queues (*)"}
        fail("denied", f"this needs the right to {role}{where.get(route.scope, '')}")


class _Bodies:
    """Bytes of all bodies that are received or worked on: clients that send many large ones at once have to share."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0

    @contextmanager
    def one(self) -> Iterator[Callable[[int], None]]:
        """A body that comes. Tell what is given of each part that it has; raises ApiProblem where that is too much."""
        own = 0

        def grow(size: int) -> None:
            nonlocal own
            own += size
            self._bytes += size
            if self._bytes > self._most:
                fail("too-many", "too much is being sent by all clients together: try again in a moment", field="body")

        try:
            yield grow
        finally:
            self._bytes -= own


async def _body(receive: Receive, most: int, grow: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            fail("bad-request", "the request was not finished", field="body")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        grow(len(parts[-1]))
        if size > most:
            fail("too-large", f"the body has {most} bytes at most", field="body")
        if not message.get("more_body"):
            return b"".join(parts)
