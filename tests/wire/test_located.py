"""The place of each message in the stream, which is the same from the fast pass and the exact parser."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

import pytest

from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.kokaq import located as kokaq_located
from penstock.wire.located import Located
from penstock.wire.phpmq import located as phpmq_located
from penstock.wire.sspq.located import LocatedDecoder
from support.vectors import Vector, load

LIMIT = 2**20
DECODERS: dict[tuple[str, str], type[Located[Any]]] = {
    ("kokaq", "client"): kokaq_located.LocatedServerDecoder,
    ("kokaq", "server"): kokaq_located.LocatedClientDecoder,
    ("phpmq", "client"): phpmq_located.LocatedServerDecoder,
    ("phpmq", "server"): phpmq_located.LocatedClientDecoder,
    ("sspq", "client"): LocatedDecoder,
    ("sspq", "server"): LocatedDecoder,
}
#: Options that these decoders do not have.
PINNED = {"dialect", "max_payload", "variant"}
PLAIN = [each for each in load("valid") if not PINNED & each.options.keys()]


def places(decoder: Located[Any], pieces: Iterable[bytes]) -> list[tuple[int, int]]:
    """Return the start and length of each message."""
    found = []
    for piece in pieces:
        frames = decoder.feed(piece)
        assert len(frames) == len(decoder.places)
        for start, lengths, between in decoder.places:
            at = start
            for length in lengths:
                found.append((at, length))
                at += length + between
    decoder.close()
    return found


def both_ways(kind: type[Located[Any]], data: bytes) -> list[tuple[int, int]]:
    whole = places(kind(LIMIT), [data])
    assert whole == places(kind(LIMIT), [data[at : at + 1] for at in range(len(data))])
    return whole


@pytest.mark.parametrize("vector", PLAIN, ids=str)
def test_the_places_of_a_vector(vector: Vector) -> None:
    kind = DECODERS[vector.codec.name, vector.sender]
    found = both_ways(kind, vector.data * 3)
    assert len(found) == 3 * len(list(vector.codec.singles(vector.frames)))


def laid_out(lengths: Iterable[int]) -> list[tuple[int, int]]:
    """Return consecutive places."""
    ends = [0, *accumulate(lengths)]
    return [(start, end - start) for start, end in pairwise(ends)]


def test_runs_of_sspq() -> None:
    frames: list[sspq.SspqFrame] = [
        sspq.Send(3, (b"", b"a", b"bcd")),
        sspq.Receive(),
        sspq.Send(4, (b"ef",)),
        sspq.Confirm(),
    ]
    assert both_ways(LocatedDecoder, sspq.encode(frames)) == laid_out([8, 9, 11, 8, 10, 8])


@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("width", [32, 36])
def test_runs_of_phpmq(width: int, line_end: bytes) -> None:
    ids = tuple(bytes([65 + each]) * 32 for each in range(3))
    payloads = (b"", b"a", b"bcd" * 50)
    style = phpmq.Style(width, line_end, dispatch_ttl=None)
    sent: list[phpmq.PhpmqFrame] = [
        phpmq.Publish("qü", payloads, 10),
        phpmq.Publish("q", payloads, None),
        phpmq.Acknowledge("q", ids),
    ]
    given = [phpmq.Dispatch("qü", ids, payloads, (0, 10, 4_000_000_000)), phpmq.Dispatch("q", ids, payloads, None)]
    check_runs(phpmq_located.LocatedServerDecoder, [*sent, phpmq.Reject("q", ids)], style)
    for frame in given:  # a server has one form
        check_runs(phpmq_located.LocatedClientDecoder, [frame], style)


def check_runs(kind: type[Located[phpmq.PhpmqFrame]], frames: list[phpmq.PhpmqFrame], style: phpmq.Style) -> None:
    """Each message has the length it has alone, without the line end."""
    alone = [len(phpmq.encode([each], style)) for each in phpmq.singles(frames)]
    whole = phpmq.encode(frames, style)
    found = both_ways(kind, whole)
    plain = phpmq.ServerDecoder if kind is phpmq_located.LocatedServerDecoder else phpmq.ClientDecoder
    assert kind(LIMIT).feed(whole) == plain(LIMIT).feed(whole)
    assert [start for start, _ in found] == [start for start, _ in laid_out(alone)]
    assert {len(style.line_end)} >= {whole - length for whole, (_, length) in zip(alone, found, strict=True)}


@pytest.mark.parametrize("numbering", kokaq.Numbering)
def test_runs_of_kokaq(numbering: kokaq.Numbering) -> None:
    variant = kokaq.Variant(numbering, kokaq.BitOrder.LOW)
    kind, opaques, payloads = kokaq.MessageType.OPERATIONAL, (b"\0" * 4,) * 3, (b"", b"a", b"bcd" * 50)
    uuids = tuple(bytes([each]) * 16 for each in range(3))
    pushes = kokaq.Pushes(kind, True, 0, "n", "qü", opaques, b"\0" * 3, payloads)
    whole = kokaq.encode_requests([pushes], variant)
    assert kokaq_located.LocatedServerDecoder(LIMIT).feed(whole) == kokaq.ServerDecoder(LIMIT).feed(whole)
    assert both_ways(kokaq_located.LocatedServerDecoder, whole) == laid_out(24 + len(each) for each in payloads)
    metadata = kokaq.MetadataRun.of(kokaq.Metadata(uuid=each) for each in uuids)
    given = kokaq.Deliveries(kind, kokaq.Opcode.GET, "n", "qü", opaques, b"\0" * 3, metadata, payloads)
    whole = kokaq.encode_responses([kokaq.Pushed(kind, opaques, b"\0" * 3, uuids), given], variant)
    lengths = [38] * 3 + [24 + 26 + len(each) for each in payloads]
    assert places(kokaq_located.LocatedClientDecoder(LIMIT, variant), [whole]) == laid_out(lengths)
    frames = kokaq_located.LocatedClientDecoder(LIMIT, variant).feed(whole)
    assert frames == kokaq.ClientDecoder(LIMIT, variant).feed(whole)


def test_numbers_with_leading_zeros_are_placed_by_the_exact_parser() -> None:
    style = phpmq.Style(32, b"\n", True)
    plain = phpmq.encode([phpmq.Publish("q", (b"H",), 7)], style)
    odd = plain.replace(b"1\n7\n", b"3\n007\n")
    assert len(odd) == len(plain) + 2
    parts = [plain, odd, odd, odd, plain, odd, plain, plain]
    found = both_ways(phpmq_located.LocatedServerDecoder, b"".join(parts))
    assert [start for start, _ in found] == [start for start, _ in laid_out(map(len, parts))]
