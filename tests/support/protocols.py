"""The three codecs behind one interface, so that vectors, properties, fuzzing and splitting are written once.

Options are those of the vector files: ``max_payload`` for any decoder, and those of each protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.stream import StreamDecoder, WireError

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Codec:
    """The interface to one protocol. ``sender`` is "client" or "server"."""

    name: str
    decoder: Callable[[str, Options], StreamDecoder[Any]]  # (sender, options)
    encode: Callable[[str, list[Any], Options], bytes]  # (sender, frames, options)
    singles: Callable[[Iterable[Any]], Iterator[Any]]
    frames: Mapping[str, type[msgspec.Struct]]


def _by_name(*types: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    return {each.__name__: each for each in types}


SSPQ = Codec(
    name="sspq",
    decoder=lambda sender, options: sspq.Decoder(**options),
    encode=lambda sender, frames, options: sspq.encode(frames),
    singles=sspq.singles,
    frames=_by_name(sspq.Send, sspq.Receive, sspq.Confirm, sspq.DeadReceive, sspq.NoReceive, sspq.Other),
)


def _phpmq_decoder(sender: str, options: Options) -> StreamDecoder[Any]:
    kind = phpmq.ServerDecoder if sender == "client" else phpmq.ClientDecoder
    dialect = options.get("dialect")
    limit = options.get("max_payload", phpmq.DEFAULT_MAX_PAYLOAD)
    return kind(limit, None if dialect is None else phpmq.Dialect(dialect))


def phpmq_style(options: Options) -> phpmq.Style:
    """The style that the options ``width``, ``line_end`` and ``dispatch_ttl`` name."""
    chosen = {name: options[name] for name in ("width", "dispatch_ttl") if name in options}
    return phpmq.Style(**chosen, line_end=options.get("line_end", "").encode())


PHPMQ = Codec(
    name="phpmq",
    decoder=_phpmq_decoder,
    encode=lambda sender, frames, options: phpmq.encode(frames, phpmq_style(options)),
    singles=phpmq.singles,
    frames=_by_name(phpmq.Publish, phpmq.Consume, phpmq.Dispatch, phpmq.Acknowledge, phpmq.Requeue, phpmq.Reject),
)


def _kokaq_variant(options: Options) -> kokaq.Variant:
    numbering, order = options.get("variant", "canonical/low").split("/")
    return kokaq.Variant(kokaq.Numbering(numbering), kokaq.BitOrder(order))


def _kokaq_decoder(sender: str, options: Options) -> StreamDecoder[Any]:
    limit = options.get("max_payload", kokaq.WIRE_MAX_PAYLOAD)
    return kokaq.ServerDecoder(limit) if sender == "client" else kokaq.ClientDecoder(limit, _kokaq_variant(options))


def _kokaq_encode(sender: str, frames: list[Any], options: Options) -> bytes:
    if sender == "client":
        return kokaq.encode_requests(frames, _kokaq_variant(options))
    return kokaq.encode_responses(frames, _kokaq_variant(options), kokaq.Tags(options.get("tags", "drawn")))


KOKAQ = Codec(
    name="kokaq",
    decoder=_kokaq_decoder,
    encode=_kokaq_encode,
    singles=kokaq.singles,
    frames=_by_name(kokaq.Request, kokaq.Pushes, kokaq.Requests, kokaq.Response, kokaq.Pushed, kokaq.Deliveries),
)

CODECS = {codec.name: codec for codec in (SSPQ, PHPMQ, KOKAQ)}


@dataclass(frozen=True)
class Outcome:
    """Everything a stream decodes to: its frames, batches taken apart, and how it ended."""

    frames: tuple[Any, ...]
    error: tuple[str, int, str, str, bool] | None

    @staticmethod
    def of(codec: Codec, frames: Iterable[Any], error: WireError | None) -> Outcome:
        failure = None
        if error is not None:
            failure = (error.protocol, error.offset, error.code, error.reason, error.peer_at_fault)
        return Outcome(tuple(codec.singles(frames)), failure)


def decode_in_pieces(
    codec: Codec, sender: str, pieces: Iterable[bytes], options: Options, *, close: bool = True
) -> Outcome:
    """Feed the pieces one after the other and, with ``close``, end the stream."""
    decoder = codec.decoder(sender, options)
    frames: list[Any] = []
    for piece in pieces:
        frames += decoder.feed(piece)
    return Outcome.of(codec, frames, decoder.close() if close else decoder.error)
