"""Kokaq for all inputs: frames survive encoding, splits change nothing, any bytes give frames or the one error."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.wire import kokaq
from penstock.wire.kokaq import (
    VARIANTS,
    ClientDecoder,
    Deliveries,
    Field,
    MessageType,
    Metadata,
    MetadataRun,
    Opcode,
    Pushed,
    Pushes,
    Request,
    Requests,
    Response,
    Responses,
    ServerDecoder,
    Status,
    Tags,
    Variant,
    singles,
)
from penstock.wire.kokaq.frames import RUN_OPCODES
from support.protocols import KOKAQ, decode_in_pieces

quick = settings(max_examples=100, deadline=None, derandomize=True)

byte = st.integers(0, 255)
opaque = st.binary(min_size=4, max_size=4)
identifier = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=20).filter(lambda value: len(value.encode(errors="surrogatepass")) < 256)
plain_text = text.filter(lambda value: value.isprintable())
variant = st.sampled_from(VARIANTS)
message_type = st.sampled_from(MessageType)
tags = st.sampled_from(Tags)
names = st.tuples(plain_text, plain_text).filter(any)
others = st.lists(
    st.builds(Field, st.integers(0x46, 255), st.binary(max_size=255)), max_size=4, unique_by=lambda field: field.tag
).map(tuple)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "time_to_live": u32,
    "version": u32,
    "created_at": u32,
    "expires_at": u32,
    "uuid": identifier,
    "source": plain_text,
    "modified_at": u64,
    "request_id": identifier,
    "correlation_id": st.binary(max_size=255),
    "handling_time": u32,
    "priority": u64,
    "lock_duration": u32,
    "depth": u64,
    "dead_reason": plain_text,
    "max_deliveries": u32,
    "delay": u32,
    "others": others,
}
metadata = st.none() | st.fixed_dictionaries({}, optional=KINDS).map(lambda fields: Metadata(**fields))


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {"metadata": draw(metadata)}
    if draw(st.booleans()):
        body["namespace"], body["queue"] = draw(names)
        body["payload"] = draw(st.binary(max_size=300))
    return body


@st.composite
def requests(draw: st.DrawFn) -> Request:
    opcode = draw(st.sampled_from(Opcode))
    head = draw(message_type), draw(st.booleans()), draw(opaque), opcode, draw(byte), draw(byte)
    if opcode is Opcode.NOP:
        return Request(*head, nop_opaque=draw(byte))
    body = draw(bodies())
    return Request(*head, **body, tags=draw(tags) if "payload" in body else Tags.DRAWN)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    nibble = st.integers(0, 15)
    opcode, status = draw(byte | st.just(0)), draw(nibble)
    head = draw(message_type), draw(opaque), opcode, status, draw(nibble), draw(byte)
    body = draw(bodies())
    if opcode == Opcode.NOP and (status == Status.SUCCESS or draw(st.booleans())):
        return Response(*head, nop_opaque=draw(byte if status == Status.SUCCESS else st.integers(4, 255)))
    return Response(*head, **body)


@st.composite
def push_runs(draw: st.DrawFn) -> Pushes:
    rows = draw(st.lists(st.tuples(opaque, byte, st.binary(max_size=100)), min_size=1, max_size=8))
    opaques, op_opaques, payloads = zip(*rows, strict=True)
    head = draw(message_type), draw(st.booleans()), draw(byte)
    return Pushes(*head, *draw(names), opaques, bytes(op_opaques), payloads, draw(tags))


@st.composite
def request_runs(draw: st.DrawFn) -> Requests:
    """Draw identical requests, mostly of the kinds that come in runs."""
    first = draw(requests().filter(lambda each: each.opcode is not Opcode.NOP))
    first = replace(first, opcode=draw(st.sampled_from([*RUN_OPCODES, first.opcode])))
    rows = draw(st.lists(st.tuples(opaque, byte, identifier), min_size=1, max_size=8))
    opaques, op_opaques, uuids = zip(*rows, strict=True)
    if draw(st.booleans()):
        return Requests(first, opaques, bytes(op_opaques))
    named = replace(first, metadata=replace(first.metadata or Metadata(), uuid=uuids[0]))
    return Requests(named, opaques, bytes(op_opaques), uuids)


@st.composite
def response_runs(draw: st.DrawFn) -> Responses:
    opaques, op_opaques = zip(*draw(st.lists(st.tuples(opaque, byte), min_size=1, max_size=8)), strict=True)
    return Responses(draw(responses()), opaques, bytes(op_opaques))


@st.composite
def answer_runs(draw: st.DrawFn) -> Pushed:
    rows = draw(st.lists(st.tuples(opaque, byte, identifier), min_size=1, max_size=8))
    opaques, op_opaques, uuids = zip(*rows, strict=True)
    return Pushed(draw(message_type), opaques, bytes(op_opaques), uuids)


@st.composite
def delivery_runs(draw: st.DrawFn) -> Deliveries:
    """Draw deliveries that mostly have the same fields, as a server's do."""
    usual = {name: KINDS[name] for name in draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=5, unique=True))}
    alike = st.fixed_dictionaries(usual).map(lambda fields: Metadata(**fields))
    rows = draw(st.lists(st.tuples(opaque, byte, alike, st.binary(max_size=100)), min_size=1, max_size=8))
    opaques, op_opaques, described, payloads = zip(*rows, strict=True)
    kind = draw(message_type), draw(st.integers(1, 255)), *draw(names)
    return Deliveries(*kind, opaques, bytes(op_opaques), MetadataRun.of(described), payloads)


#: A leading two-way request settles the variant in which later one-way requests are read.
SETTLES = Request(MessageType.OPERATIONAL, True, b"\0\0\0\0", Opcode.NOP)
client_frames = st.lists(requests() | push_runs() | request_runs(), max_size=5).map(lambda frames: [SETTLES, *frames])
server_frames = st.lists(responses() | answer_runs() | delivery_runs() | response_runs(), max_size=5)


def options(spoken: Variant) -> dict[str, str]:
    return {"variant": f"{spoken.numbering.value}/{spoken.bit_order.value}"}


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]


@quick
@given(client_frames, variant)
def test_requests_come_back(frames: list[kokaq.KokaqRequest], spoken: Variant) -> None:
    decoder = ServerDecoder()
    found = decoder.feed(kokaq.encode_requests(frames, spoken))
    assert list(singles(found)) == list(singles(frames))
    assert decoder.close() is None
    assert decoder.variant == spoken


@quick
@given(server_frames, variant, tags)
def test_responses_come_back(frames: list[kokaq.KokaqResponse], spoken: Variant, tagged: Tags) -> None:
    decoder = ClientDecoder(variant=spoken)
    found = decoder.feed(kokaq.encode_responses(frames, spoken, tagged))
    assert list(singles(found)) == list(singles(frames))
    assert decoder.close() is None


@quick
@given(client_frames, variant, st.lists(st.integers(0, 5000), max_size=12))
def test_splits_of_requests_change_nothing(frames: list[kokaq.KokaqRequest], spoken: Variant, cuts: list[int]) -> None:
    data = kokaq.encode_requests(frames, spoken)
    whole = decode_in_pieces(KOKAQ, "client", [data], {})
    assert decode_in_pieces(KOKAQ, "client", pieces(data, cuts), {}) == whole


@quick
@given(server_frames, variant, tags, st.lists(st.integers(0, 5000), max_size=12))
def test_splits_of_responses_change_nothing(
    frames: list[kokaq.KokaqResponse], spoken: Variant, tagged: Tags, cuts: list[int]
) -> None:
    data = kokaq.encode_responses(frames, spoken, tagged)
    whole = decode_in_pieces(KOKAQ, "server", [data], options(spoken))
    assert decode_in_pieces(KOKAQ, "server", pieces(data, cuts), options(spoken)) == whole


@st.composite
def damaged(draw: st.DrawFn, sender: str) -> bytes:
    """Draw valid messages with a few bytes changed, which get far deeper into the decoder than random bytes."""
    frames: Any = draw(client_frames if sender == "client" else server_frames.filter(bool))
    data = bytearray(KOKAQ.encode(sender, frames, {}))
    for at, value in draw(st.lists(st.tuples(st.integers(0, 5000), byte), max_size=4)):
        data[at % len(data)] = value
    return bytes(data)


@quick
@given(st.sampled_from(["client", "server"]), st.data(), st.lists(st.integers(0, 5000), max_size=6))
def test_any_bytes_give_frames_or_the_error(sender: str, data: st.DataObject, cuts: list[int]) -> None:
    stream = data.draw(damaged(sender) | st.binary(max_size=200))
    limits = {"max_payload": 64}
    whole = decode_in_pieces(KOKAQ, sender, [stream], limits)
    assert decode_in_pieces(KOKAQ, sender, pieces(stream, cuts), limits) == whole
    if whole.error is not None:
        protocol, offset, code, reason, _ = whole.error
        assert protocol == "Kokaq"
        assert 0 <= offset <= len(stream)
        assert code
        assert reason


@quick
@given(damaged("client"), st.integers(1, 40))
def test_held_memory_is_bounded(stream: bytes, step: int) -> None:
    """The incomplete field is the payload (up to the limit), the names, or smaller."""
    decoder = ServerDecoder(max_payload=64)
    for at in range(0, len(stream), step):
        decoder.feed(stream[at : at + step])
        assert decoder.held <= 2 * kokaq.WIRE_MAX_NAME
