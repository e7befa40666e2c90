"""Sends a response or a problem over ASGI, with the headers that all responses have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from penstock.admin.connections import HttpConnection
from penstock.admin.http import Response
from penstock.admin.problems import RETRY_AFTER, fail
from penstock.admin.resources.common import Problem

Send = Callable[[dict[str, Any]], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Reply:
    """The reply to one request."""

    def __init__(self, send: Send, connection: HttpConnection | None, *, head: bool) -> None:
        self._send = send
        self._connection = connection
        self._head = head
        self._closes = False

    def check_framing(self, headers: Mapping[str, str]) -> None:
        """Reject a body with two lengths and close the connection: a proxy may have used the other length."""
        if "transfer-encoding" in headers and "content-length" in headers:
            self._closes = True
            text = "a request has Content-Length or Transfer-Encoding, not both"
            fail("bad-request", text, field="header.Transfer-Encoding")

    async def problem(self, problem: Problem, retry_after: int = RETRY_AFTER) -> None:
        """Send a problem as RFC 9457 defines it."""
        extra: list[tuple[str, str]] = []
        if problem.status == 401:
            extra.append(("www-authenticate", 'Bearer realm="penstock"'))
        too_large = problem.status == 413 and self._connection is not None and not self._connection.authenticated
        if self._closes or too_large:
            extra.append(("connection", "close"))
        if problem.status in (429, 503):
            extra.append(("retry-after", str(retry_after)))
        await self._whole(problem.status, "application/problem+json", msgspec.json.encode(problem), extra)

    async def response(self, response: Response) -> None:
        """Send what a handler returned."""
        if response.stream is not None:
            await self._stream(response)
            return
        body = response.body if response.body is not None else msgspec.json.encode(response.value)
        await self._whole(response.status, response.media, body, response.headers)

    async def _whole(self, status: int, media: str, body: bytes, extra: Iterable[tuple[str, str]]) -> None:
        await self._start(status, media, [*extra, ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": b"" if self._head else body})

    async def _stream(self, response: Response) -> None:
        """Send pieces until the stream ends or the client is gone, which ``send`` does not report."""
        await self._start(response.status, response.media, response.headers)
        if not self._head:
            tasks = [asyncio.create_task(self._pieces(response))]
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

    async def _pieces(self, response: Response) -> None:
        assert response.stream is not None
        async with aclosing(response.stream) as pieces:
            async for piece in pieces:
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _start(self, status: int, media: str, extra: Iterable[tuple[str, str]]) -> None:
        headers = {**HEADERS, "content-type": media, **dict(extra)}
        lines = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
