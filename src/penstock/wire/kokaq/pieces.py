"""Responses with more payload than one Kokaq message can hold: split by a server, reassembled by a client."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.wire.kokaq.frames import WIRE_MAX_PAYLOAD, KokaqResponse, Response, Status, singles

#: The default limit of a message that a client reassembles: the broker's own default.
DEFAULT_MAX_MESSAGE = 16 * 2**20


def in_pieces(response: Response) -> list[Response]:
    """The responses that carry this one: itself, or several if its payload is larger than one response can hold.

    All pieces except the last have the status PartialSuccess. Only the first has metadata; each has the names.
    """
    payload = response.payload or b""
    if len(payload) <= WIRE_MAX_PAYLOAD:
        return [response]
    cuts = range(0, len(payload), WIRE_MAX_PAYLOAD)
    pieces = [replace(response, metadata=None, payload=payload[at : at + WIRE_MAX_PAYLOAD]) for at in cuts]
    pieces[:-1] = [replace(piece, status=Status.PARTIAL_SUCCESS) for piece in pieces[:-1]]
    pieces[0] = replace(pieces[0], metadata=response.metadata)
    return pieces


def _is_piece(frame: KokaqResponse) -> bool:
    return isinstance(frame, Response) and frame.status == Status.PARTIAL_SUCCESS


class PieceError(Exception):
    """The pieces of a response do not fit together. As with a WireError, the connection can't be used any more.

    ``Reassembler.error`` holds it. ``code`` is "message-too-large" (our own limit) or "bad-piece".
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"Kokaq: {reason}")
        self.code = code
        self.reason = reason


class Reassembler:
    """Reassembles responses that came in pieces, for a client. All other responses pass through.

    Answers come in the order of their requests, so a response with another opaque between two pieces is an error. If
    the last response of a sequence of pieces is not Success, it replaces the whole response: the pieces are dropped.
    """

    def __init__(self, max_message: int = DEFAULT_MAX_MESSAGE) -> None:
        self.max_message = max_message
        #: The error that ended it, or None. Once set, ``feed`` ignores its input.
        self.error: PieceError | None = None
        self._first: Response | None = None
        self._payloads: list[bytes] = []
        self._size = 0

    @property
    def held(self) -> int:
        """How many bytes of unfinished responses are held. At most ``max_message``."""
        return self._size

    def feed(self, frames: Iterable[KokaqResponse]) -> list[KokaqResponse]:
        """Take a decoder's frames and return those that are whole. Look at ``error`` afterwards, as with a decoder."""
        whole: list[KokaqResponse] = []
        try:
            for frame in frames if self.error is None else ():
                if self._first is None and not _is_piece(frame):
                    whole.append(frame)
                else:
                    whole += filter(None, map(self._take, singles([frame])))
        except PieceError as error:
            self.error = error.with_traceback(None)
            self._forget()
        return whole

    def _take(self, piece: Response) -> Response | None:
        if self._first is None and not _is_piece(piece):
            return piece
        first = self._first or piece
        if piece.opaque != first.opaque:
            raise PieceError("bad-piece", "another answer came between the pieces of a response")
        if piece.status not in (Status.PARTIAL_SUCCESS, Status.SUCCESS):
            self._forget()
            return piece
        if not piece.payload:
            raise PieceError("bad-piece", "a piece of a response has no payload")
        self._size += len(piece.payload)
        if self._size > self.max_message:
            raise PieceError("message-too-large", f"a message is over the limit of {self.max_message} bytes")
        self._payloads.append(piece.payload)
        if piece.status == Status.PARTIAL_SUCCESS:
            self._first = first
            return None
        finished = replace(first, status=piece.status, reason=piece.reason, payload=b"".join(self._payloads))
        self._forget()
        return finished

    def _forget(self) -> None:
        self._first = None
        self._payloads = []
        self._size = 0
