"""Captures of Kokaq: how to recognise them, and its frames as rows. Pure: no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import countOf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from penstock.spark.pipelines.decode.captures import TO_CLIENT, TO_SERVER, Capture, Guess
from penstock.spark.pipelines.decode.frames import Columns, Deferred, FrameRows
from penstock.wire import kokaq
from penstock.wire.kokaq.fields import KNOWN, TAGS
from penstock.wire.kokaq.located import LocatedClientDecoder, LocatedServerDecoder

#: From this many deliveries on, their metadata is decoded at once, which costs as much as a few of them one by one.
MANY = 32


def _rows(frame: kokaq.KokaqRequest | kokaq.KokaqResponse) -> FrameRows:
    """Types are named for opcodes; ``fields`` contains everything that has no column."""
    match frame:
        case kokaq.Pushes():
            fields = _json(
                {"message_type": frame.message_type.name, "two_way": frame.two_way, "client": frame.client or None}
            )
            return FrameRows(
                "PUSH", len(frame.payloads), frame.payloads, frame.namespace, frame.queue, None, frame.opaques, None,
                None, fields,
            )  # fmt: skip
        case kokaq.Pushed():
            fields = _json({"message_type": frame.message_type.name, "status": "SUCCESS", "reason": "OK"})
            return FrameRows("PUSH", len(frame.uuids), ids=frame.uuids, opaques=frame.opaques, fields=fields)
        case kokaq.Deliveries():
            return _deliveries(frame)
        case kokaq.Requests():
            rows, count = _single(frame.first), len(frame.opaques)
            payloads = None if rows.payloads is None else [*rows.payloads] * count
            return rows._replace(messages=count, payloads=payloads, ids=frame.uuids or None, opaques=frame.opaques)
    return _single(frame)


def _deliveries(frame: kokaq.Deliveries) -> FrameRows:
    shared = _json({"message_type": frame.message_type.name, "status": "SUCCESS", "reason": "OK"})[:-1]
    return FrameRows(
        _opcode(frame.opcode), len(frame.payloads), frame.payloads, frame.namespace, frame.queue,
        opaques=frame.opaques, deferred=Deferred(shared, [*frame.metadata.raw], _read),
    )  # fmt: skip


def _read(shared: str, raw: list[bytes]) -> Columns:
    """The metadata of a run of deliveries: columns, and the rest as JSON."""
    return _uniform(shared, raw) or _one_by_one(shared, raw)


def _one_by_one(shared: str, raw: list[bytes]) -> Columns:
    metadata = list(kokaq.MetadataRun(tuple(raw)))
    texts = [_json(_known(each))[1:] for each in metadata]
    fields = [f"{shared}, {text}" if len(text) > 1 else f"{shared}}}" for text in texts]
    return Columns([each.uuid for each in metadata], [each.time_to_live for each in metadata], fields)


def _uniform(shared: str, raw: list[bytes]) -> Columns | None:
    """The same at once, for metadata of one shape with only integers and identifiers; None for any other."""
    if len(raw) < MANY or countOf(map(len, raw), len(raw[0])) < len(raw) or (heads := _heads(raw[0])) is None:
        return None
    table = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), -1)
    places = [0, 1, 2, 3] + [at + byte for at, _, _ in heads for byte in (-2, -1)]
    if (table[:, places] != table[0, places]).any():
        return None
    uuids = ttls = None
    text, texts = shared, []
    for at, size, name in heads:
        value = np.ascontiguousarray(table[:, at : at + size])
        if name == "uuid":
            uuids = _fixed(value.tobytes(), size, pa.binary())
        elif name == "time_to_live":
            ttls = pa.array(value.view(f">u{size}").ravel().astype(np.int64))
        elif size == 16:
            texts += [f'{text}, "{name}": "', _fixed(value.tobytes().hex().encode(), 2 * size, pa.string())]
            text = '"'
        else:
            number = pa.array(value.view(f">u{size}").ravel().astype(f"u{size}"))
            texts += [f'{text}, "{name}": ', number.cast(pa.string())]
            text = ""
    if not texts:
        return Columns(uuids, ttls, [f"{shared}}}"] * len(raw))
    return Columns(uuids, ttls, pc.binary_join_element_wise(*texts, f"{text}}}", ""))


def _fixed(joined: bytes, size: int, kind: pa.DataType) -> pa.Array:
    """An array of values of one size."""
    count = len(joined) // size
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(joined)])


def _heads(raw: bytes) -> list[tuple[int, int, str]] | None:
    """Place, size and name of each field's value; None if a field is neither a known integer nor an identifier."""
    found = []
    at = 6
    while at <= len(raw):
        tag, size = raw[at - 2 : at]
        known = KNOWN.get(tag)
        if known is None or (size != known.width if known.width else known.text or known.name == "correlation_id"):
            return None
        found.append((at, size, known.name))
        at += size + 2
    return sorted(found, key=lambda head: list(TAGS).index(head[2]))


def _single(frame: kokaq.Request | kokaq.Response) -> FrameRows:
    fields: dict[str, Any] = {"message_type": frame.message_type.name}
    if isinstance(frame, kokaq.Request):
        fields |= {"two_way": frame.two_way, "client": frame.client or None}
    else:
        fields |= {"status": _named(kokaq.Status, frame.status), "reason": _named(kokaq.Reason, frame.reason)}
    metadata = frame.metadata or kokaq.Metadata()
    fields |= {"problem": frame.problem, **_known(metadata)}
    operation = frame.operation if isinstance(frame, kokaq.Request) else None
    return FrameRows(
        operation.name if operation is not None else _opcode(frame.opcode), 1,
        None if frame.payload is None else [frame.payload], frame.namespace, frame.queue,
        None if metadata.uuid is None else [metadata.uuid], [frame.opaque], metadata.time_to_live, None, _json(fields),
    )  # fmt: skip


def _known(metadata: kokaq.Metadata) -> dict[str, Any]:
    """The fields that are set and have no column."""
    found = {name: value for name, value in structs.asdict(metadata).items() if value is not None}
    for name in ("uuid", "time_to_live"):
        found.pop(name, None)
    others = found.pop("others")
    if others:
        found["others"] = {f"0x{field.tag:02x}": field.value for field in others}
    return found


def _json(fields: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None}, default=bytes.hex)


def _opcode(number: int) -> str:
    return _named(kokaq.Opcode, number)


def _named(numbers: Iterable[Any], number: int) -> str:
    return next((each.name for each in numbers if each == number), f"0x{number:02x}")


def _decoder(found: Guess) -> LocatedClientDecoder | LocatedServerDecoder:
    if found.direction == TO_CLIENT:
        return LocatedClientDecoder(kokaq.WIRE_MAX_PAYLOAD, found.variant or kokaq.CANONICAL)
    return LocatedServerDecoder(kokaq.WIRE_MAX_PAYLOAD)


def _guess(head: bytes, direction: str | None) -> tuple[str | None, kokaq.Variant]:
    """If a byte has two meanings, the protocol's own numbering is more likely."""
    for variant in kokaq.VARIANTS if len(head) >= 4 else ():
        requests = {variant.request_byte(each, way) for each in kokaq.MessageType for way in (True, False)}
        responses = {variant.response_byte(each) for each in kokaq.MessageType}
        if direction != TO_CLIENT and head[3] in requests:
            return TO_SERVER, variant
        if direction != TO_SERVER and head[3] in responses:
            return TO_CLIENT, variant
    return direction, kokaq.CANONICAL


CAPTURE = Capture(magic=b"\x04\x20", decoder=_decoder, rows=_rows, guess=_guess)
