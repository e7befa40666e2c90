"""A scripted broker: each test writes its answers, connection by connection, frame by frame."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from penstock.client.aio import AsyncClient
from penstock.client.errors import ClientError
from penstock.wire import kokaq, phpmq, sspq

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], seconds: float = 10) -> T:
    """Run a coroutine with a timeout."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


class Peer:
    """The broker's end of one connection."""

    def __init__(self, protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.protocol = protocol
        self.reader = reader
        self.writer = writer
        self._decoder: Any = {
            "phpmq": phpmq.ServerDecoder,
            "sspq": sspq.Decoder,
            "kokaq": kokaq.ServerDecoder,
        }[protocol]()
        self._singles: Any = {"phpmq": phpmq.singles, "sspq": sspq.singles, "kokaq": kokaq.singles}[protocol]
        self._frames: deque[Any] = deque()

    async def next(self) -> Any:
        """The next frame from the client, batches taken apart. None at the end of the stream."""
        while not self._frames:
            data = await self.reader.read(65536)
            if not data:
                return None
            self._frames.extend(self._singles(self._decoder.feed(data)))
            assert self._decoder.error is None, self._decoder.error
        return self._frames.popleft()

    async def rest(self) -> list[Any]:
        """All frames until the client closes."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    def send(self, *frames: Any) -> None:
        """Send frames, or bytes as they are."""
        for frame in frames:
            self.writer.write(frame if isinstance(frame, bytes) else self._encode(frame))

    def _encode(self, frame: Any) -> bytes:
        if self.protocol == "phpmq":
            return phpmq.encode([frame], self._decoder.style or phpmq.Style())
        if self.protocol == "sspq":
            return sspq.encode([frame])
        return kokaq.encode_responses([frame], self._decoder.variant)

    def answer(
        self, request: kokaq.Request, status: int = 0, reason: int = 1, *, payload: bytes | None = None, **fields: Any
    ) -> kokaq.Response:
        """Answer a Kokaq request."""
        names = payload is not None
        metadata = kokaq.Metadata(**fields) if fields else None
        response = kokaq.Response(
            request.message_type,
            request.opaque,
            request.opcode,
            status,
            reason,
            request.op_opaque,
            metadata,
            (request.namespace or "ns") if names else None,
            (request.queue or "q") if names else None,
            payload,
        )
        self.send(*kokaq.in_pieces(response))
        return response

    def reset(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Fake:
    """A listening broker. The nth connection gets the nth script; the last script serves all further ones."""

    def __init__(
        self, protocol: str, *scripts: Script, unix: Path | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.protocol = protocol
        self._scripts = scripts
        self._unix = unix
        self._tls = tls
        self.connections = 0
        self.problems: list[BaseException] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Fake:
        if self._unix is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._unix)
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if error is None:
            assert self.problems == []

    async def finished(self, connections: int = 1) -> None:
        """Wait until this many connections have come, and all their scripts have ended."""
        while self.connections < connections or self._tasks:
            await asyncio.sleep(0.001)

    def stop(self) -> None:
        """Accept no more connections."""
        assert self._server is not None
        self._server.close()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str = "") -> str:
        if self._unix is not None:
            return f"{self.protocol}+unix://{self._unix}{path}"
        return f"{self.protocol}{'+tls' if self._tls else ''}://127.0.0.1:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await script(Peer(self.protocol, reader, writer))
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.problems.append(error)
        finally:
            self._tasks.discard(task)
            writer.close()


async def until_over(client: AsyncClient) -> None:
    """Wait until the client has noticed that its connection is over."""
    while True:
        try:
            client.check()
        except ClientError:
            return
        await asyncio.sleep(0.001)


def dispatch(queue: str, *bodies: bytes, first: int = 0, ttl: int | None = None) -> phpmq.Dispatch:
    """PHPMQ: messages with running IDs."""
    ids = tuple(b"%032x" % (first + number) for number in range(len(bodies)))
    return phpmq.Dispatch(queue, ids, tuple(bodies), None if ttl is None else (ttl,) * len(bodies))


async def quiet(peer: Peer) -> None:
    """Read everything, answer nothing."""
    await peer.rest()


def bodies(frames: Iterable[Any]) -> list[bytes]:
    """The payloads of frames that carry one each."""
    return [frame.payloads[0] for frame in frames]
