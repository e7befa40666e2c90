"""One connection: bytes to frames, writes with backpressure, and one reason why it ended."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from typing_extensions import override

from penstock.client.errors import ClientError, Closed, ConnectFailed, Disconnected, ProtocolProblem, TimedOut
from penstock.client.options import ClientOptions
from penstock.client.urls import Address
from penstock.tls_errors import handshake_reason
from penstock.wire.stream import StreamDecoder, WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FrameT = TypeVar("FrameT")

#: Bytes that may wait in our buffer before a writer waits: enough to keep the connection busy. A slow broker costs its
#: client no more memory than this.
WRITE_BUFFER = 256 * 1024
#: Seconds that a closing connection waits for the broker to read everything.
CLOSE_TIMEOUT = 2.0
#: Keepalive probes, so that a waiting consumer notices that the broker's machine is gone.
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}


class Link(asyncio.Protocol, Generic[FrameT]):
    """A connection of one protocol. ``on_frames`` gets the frames that a read completes; ``on_lost`` is called once.

    ``failure`` holds the one reason why it ended: lost, timed out, not understood, or closed.
    """

    def __init__(
        self,
        address: Address,
        decoder: StreamDecoder[FrameT],
        on_frames: Callable[[list[FrameT]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.address = address
        self.failure: ClientError | None = None
        #: Whether we closed the connection, and the broker then closed its side properly and in time.
        self.parted = False
        self._decoder = decoder
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        #: Written in this turn of the loop, not yet passed to the transport.
        self._parts: list[bytes] = []
        self._size = 0
        self._heard = False

    # Called by asyncio.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods, but not the base class
        self._transport.set_write_buffer_limits(WRITE_BUFFER)
        if not self.address.path:
            _keep_alive(self._transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self.failure is not None:
            return  # keep reading while closing: unread bytes would turn the close into a reset
        frames = self._decoder.feed(data)
        if frames:
            self._on_frames(frames)
        if self._decoder.error is not None:
            self.fail(self._problem(self._decoder.error))

    @override
    def eof_received(self) -> None:
        error = self._decoder.close()
        where = " in the middle of a message" if error else ""
        self.fail(Disconnected(f"{self.address}: the broker closed the connection{where}"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self.parted = exc is None and isinstance(self.failure, Closed)
        self.fail(Disconnected(f"{self.address}: the connection was lost ({self._loss(exc)})"))

    @override
    def pause_writing(self) -> None:
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        self._writable.set()

    # Called by sessions.

    def fail(self, error: ClientError) -> None:
        """End the connection for this reason, unless it already ended."""
        if self.failure is not None:
            return
        self.failure = error
        self._parts.clear()
        self._writable.set()
        if self._transport is not None and not isinstance(error, Closed):
            self._transport.abort()
        self._on_lost()

    def check(self) -> None:
        """Raise the reason why the connection ended, if it did."""
        if self.failure is not None:
            raise copy.copy(self.failure) from self.failure.__cause__

    def write(self, data: bytes) -> None:
        """Buffer data; everything written in one turn of the loop is sent together at its end."""
        self.check()
        if not self._parts and not self._loop.is_closed():
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)

    async def drain(self, timeout: float, *, at_once: bool = True) -> None:
        """Send what was written and wait for room. Without ``at_once``, sending may wait for the end of the turn.

        Fails the connection if the broker does not read for ``timeout`` seconds.
        """
        if at_once or self._size >= WRITE_BUFFER:
            self._flush()
        if not self._writable.is_set():
            async with self.limit(timeout, "read what was sent"):
                await self._writable.wait()
        self.check()

    @asynccontextmanager
    async def limit(self, timeout: float, what: str) -> AsyncIterator[None]:
        """Fail the connection if the block takes longer."""
        try:
            async with asyncio.timeout(timeout):
                yield
        except TimeoutError:
            error = TimedOut(f"{self.address}: the broker did not {what} within {timeout:g} s")
            self.fail(error)
            raise error from None

    async def ended(self, timeout: float) -> bool:
        """Whether the connection has ended or ends within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Flush, close our side, and wait until the broker has closed its own.

        The half-close matters: closing both sides with unread bytes makes the kernel reset the connection, and the
        broker could lose what it had not read yet.
        """
        self._flush()
        self.fail(Closed(f"{self.address}: the client was closed"))
        transport = self._transport
        assert transport is not None
        try:
            if transport.can_write_eof() and not transport.is_closing():
                transport.write_eof()
            else:
                transport.close()
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._gone.wait()
        except OSError:  # a TimeoutError, or the broker has just reset the connection
            transport.abort()
            await self._gone.wait()
            self.parted = False

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and self.failure is None and self._transport is not None:
            self._transport.write(b"".join(parts))

    def _loss(self, error: Exception | None) -> str:
        """Why the connection was lost. In TLS 1.3 a broker rejects our certificate after our handshake succeeded."""
        if isinstance(error, ssl.SSLError):
            return handshake_reason(error, "broker")
        if error is None and self.address.use_tls and not self._heard:
            return "closed before the broker sent anything: it may have rejected our certificate; see its log"
        return str(error or "closed")

    def _problem(self, error: WireError) -> ProtocolProblem:
        problem = ProtocolProblem(f"{self.address} does not speak {self.address.protocol}: {error}")
        problem.code = error.code
        problem.__cause__ = error
        return problem


async def open_link(link: Link[FrameT], options: ClientOptions) -> None:
    """Connect. Raises :class:`ConnectFailed`, or BadURL for unusable TLS files."""
    address = link.address
    context = options.tls.context() if address.use_tls else None
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(options.connect_timeout):
            if address.path:
                await loop.create_unix_connection(lambda: link, address.path)
            else:
                name = address.server_name or address.host if context else None
                await loop.create_connection(
                    lambda: link, address.host, address.port, ssl=context, server_hostname=name
                )
    except TimeoutError as error:
        raise ConnectFailed(f"{address}: no connection within {options.connect_timeout:g} s") from error
    except ssl.SSLError as error:
        raise _final(f"{address}: no TLS connection: {handshake_reason(error, 'broker')}") from error
    except ConnectionResetError as error:
        raise ConnectFailed(f"{address}: {handshake_reason(error, 'broker') if context else error}") from error
    except (PermissionError, UnicodeError) as error:
        raise _final(f"{address}: {error}") from error
    except OSError as error:
        # asyncio's text ("Connect call failed") gives no reason; errno does.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise ConnectFailed(f"{address}: {why}") from error


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _final(text: str) -> ConnectFailed:
    error = ConnectFailed(text)
    error.retriable = False
    return error
