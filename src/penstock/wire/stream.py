"""The base of all decoders: their contract, their one error, and the driver of the exact parser.

Theory of operation
-------------------
Each protocol describes its messages twice:

* ``_message`` is the *exact* parser: a generator that reads one message from top to bottom. It yields how many bytes it
  wants next, is sent exactly that many, and finally returns the frame or raises :class:`WireError`. Every rule and
  every error of the protocol is here. It can be suspended between any two bytes.
* ``_run`` is the *fast* pass: it takes whole, plain messages straight out of a chunk, and stops at the first byte that
  does not fit. It never reports an error; the exact parser continues where it stops.

``feed`` alternates between the two, so the same bytes give the same frames and the same error however they are split.
Chunks are never joined: an unfinished field keeps views of its chunks, and is joined once, when its last byte arrives.
A payload is therefore copied once, from the chunk (or chunks) into its frame (`SMALL_PART` has the one exception).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import ClassVar, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

FrameT = TypeVar("FrameT")

#: Parts of an unfinished field smaller than this are copied into one buffer instead of viewed. A view costs about as
#: much and keeps its whole chunk alive, so a peer that sends its payload in tiny pieces would make us hold many times
#: the bytes that it sent. The same applies to a part that is less than half of its chunk: so we never hold more than
#: twice ``held``. Only these parts are copied a second time.
SMALL_PART: Final = 512


@mypyc_attr(native_class=False)
class WireError(Exception):
    """The one error of a decoder. The rest of the stream can't be decoded.

    ``offset`` counts bytes from the start of the stream and points at the field at fault. ``code`` is for programs and
    stays the same between releases, ``reason`` is for people. ``peer_at_fault`` is false if the bytes are valid but
    exceed a limit of ours, and if the stream ended in the middle of a message. ``size`` and ``limit`` are those of a
    payload that is too large, else 0.
    """

    size = 0
    limit = 0

    def __init__(self, protocol: str, offset: int, code: str, reason: str, *, peer_at_fault: bool = True) -> None:
        super().__init__(f"{protocol}: {reason} (at byte {offset})")
        self.protocol = protocol
        self.offset = offset
        self.code = code
        self.reason = reason
        self.peer_at_fault = peer_at_fault


def too_large(error: WireError, size: int, limit: int) -> WireError:
    """The error with its size and limit."""
    error.size, error.limit = size, limit
    return error


@mypyc_attr(allow_interpreted_subclasses=True)  # decoders of other distributions, and located decoders
class StreamDecoder(ABC, Generic[FrameT]):
    """Turns a stream of bytes into frames. See the module's theory of operation."""

    protocol: ClassVar[str]

    def __init__(self) -> None:
        #: The error that ended the stream, or None. Once set, ``feed`` ignores its input.
        self.error: WireError | None = None
        #: Stream offset of the first byte after the last complete field.
        self.offset = 0
        self._field_at = 0
        self._parser: Generator[int, bytes, FrameT | None] | None = None
        self._need = 0
        self._held: list[memoryview | bytearray] = []
        #: How many bytes of an unfinished field are held. At most the payload limit.
        self.held = 0

    @property
    def between_messages(self) -> bool:
        """Whether every message that began is complete."""
        return self._parser is None

    def feed(self, data: bytes) -> list[FrameT]:
        """Take the next bytes of the stream and return the frames that they complete, in order.

        Look at ``error`` afterwards: frames that were complete before a bad byte are returned with it, and nothing is
        returned after it. The decoder may keep a reference to ``data`` until the message at its end is complete.
        """
        frames: list[FrameT] = []
        end = len(data)
        pos = self._continue(data, 0, frames) if self._parser is not None else 0
        while pos < end and self._parser is None and self.error is None:
            start = pos
            pos = self._run(data, pos, frames)
            self.offset += pos - start
            if pos < end:
                self._parser = self._message()
                self._need = next(self._parser)
                pos = self._continue(data, pos, frames)
        return frames

    def close(self) -> WireError | None:
        """End the stream. Returns ``error``, which is set now if a message was cut short."""
        if self.error is None and self._parser is not None:
            self.error = WireError(
                self.protocol,
                self.offset + self.held,
                "truncated",
                f"the stream ended {abs(self._need) - self.held} byte(s) before the end of a field",
                peer_at_fault=False,
            )
            self._parser = None
            self._held = []
            self.held = 0
        return self.error

    @abstractmethod
    def _message(self) -> Generator[int, bytes, FrameT | None]:
        """Read one message exactly: yield the size of the next field (above 0), be sent its bytes, return the frame.

        A negative size asks for as many of those bytes as are available (at least one): see ``_skip``.
        Returns None for a message that callers can ignore.
        """

    @abstractmethod
    def _run(self, data: bytes, pos: int, frames: list[FrameT]) -> int:
        """Append the frames of the plain, complete messages at ``pos``. Returns the position of the first other one."""

    def _bad(self, code: str, reason: str, *, at: int = 0, peer_at_fault: bool = True) -> WireError:
        """Make the error for the field read last; ``at`` is the bad byte's place inside that field."""
        return WireError(self.protocol, self._field_at + at, code, reason, peer_at_fault=peer_at_fault)

    def _skip(self, size: int) -> Generator[int, bytes, None]:
        """Read ``size`` bytes as one field and discard them as they arrive; none of them are held."""
        start = self.offset
        while size > 0:
            size -= len((yield -size))
        self._field_at = start

    def _continue(self, data: bytes, pos: int, frames: list[FrameT]) -> int:
        """Drive the exact parser until its message or the chunk ends. Returns the position reached."""
        parser = self._parser
        assert parser is not None
        try:
            while (missing := self._missing(len(data) - pos)) <= len(data) - pos:
                field = self._take(data, pos, missing)
                pos += missing
                self._need = parser.send(field)
        except StopIteration as finished:
            self._parser = None
            if finished.value is not None:
                frames.append(finished.value)
            return pos
        except WireError as error:
            self.error = error.with_traceback(None)  # a traceback would keep the chunk, and ourselves, alive
            self._parser = None
            return pos
        self._hold(data, pos)
        return len(data)

    def _missing(self, available: int) -> int:
        """How many more bytes the parser needs for its next step."""
        if self._need < 0:
            return max(1, min(-self._need, available))
        return self._need - self.held

    def _hold(self, data: bytes, pos: int) -> None:
        """Keep the rest of the chunk: the beginning, or one more part, of an unfinished field."""
        size = len(data) - pos
        if size >= SMALL_PART and 2 * size >= len(data):
            self._held.append(memoryview(data)[pos:])
        elif size:
            if not self._held or isinstance(self._held[-1], memoryview):
                self._held.append(bytearray())
            gathered = self._held[-1]
            assert isinstance(gathered, bytearray)
            gathered += memoryview(data)[pos:]
        self.held += size

    def _take(self, data: bytes, pos: int, missing: int) -> bytes:
        """Join one field from the held parts and the next ``missing`` bytes of the chunk: the only copy."""
        if self._held:
            self._held.append(memoryview(data)[pos : pos + missing])
            field = b"".join(self._held)
            self._held = []
            self.held = 0
        else:
            field = data[pos : pos + missing]
        self._field_at = self.offset
        self.offset += len(field)
        return field
