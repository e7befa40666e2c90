"""Kokaq: requests and responses with namespaces, queues and metadata. The specification is docs/protocols/kokaq.md.

The largest of the three protocols, so its parts have files of their own:

* ``frames`` has the vocabulary: numbers, variants, and the frames themselves.
* ``fields`` has the metadata of a message.
* ``decode`` turns bytes into frames, ``encode`` frames into bytes; each for both sides. ``push_runs``, ``shapes`` and
  ``runs`` help with runs of messages that are alike.
* ``pieces`` splits what is larger than one message, and puts it together again.
"""

from penstock.wire.kokaq.decode import ClientDecoder, ServerDecoder
from penstock.wire.kokaq.encode import encode_requests, encode_responses, response_parts
from penstock.wire.kokaq.fields import MAX_FIELDS, MAX_METADATA, Field, Metadata
from penstock.wire.kokaq.frames import (
    CANONICAL,
    VARIANTS,
    WIRE_MAX_NAME,
    WIRE_MAX_PAYLOAD,
    BitOrder,
    Deliveries,
    KokaqRequest,
    KokaqResponse,
    MessageType,
    Numbering,
    Opcode,
    Pushed,
    Pushes,
    Reason,
    Request,
    Requests,
    Response,
    Responses,
    Status,
    Tags,
    Variant,
    singles,
)
from penstock.wire.kokaq.pieces import DEFAULT_MAX_MESSAGE, PieceError, Reassembler, in_pieces
from penstock.wire.kokaq.runs import MetadataRun

__all__ = [
    "CANONICAL",
    "DEFAULT_MAX_MESSAGE",
    "MAX_FIELDS",
    "MAX_METADATA",
    "VARIANTS",
    "WIRE_MAX_NAME",
    "WIRE_MAX_PAYLOAD",
    "BitOrder",
    "ClientDecoder",
    "Deliveries",
    "Field",
    "KokaqRequest",
    "KokaqResponse",
    "MessageType",
    "Metadata",
    "MetadataRun",
    "Numbering",
    "Opcode",
    "PieceError",
    "Pushed",
    "Pushes",
    "Reason",
    "Reassembler",
    "Request",
    "Requests",
    "Response",
    "Responses",
    "ServerDecoder",
    "Status",
    "Tags",
    "Variant",
    "encode_requests",
    "encode_responses",
    "in_pieces",
    "response_parts",
    "singles",
]
