"""PHPMQ beyond the vectors: learning and pinning, batches, encoder errors, memory and cost."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import SupportsIndex

import pytest

from penstock.wire.phpmq import (
    Acknowledge,
    ClientDecoder,
    Consume,
    Dialect,
    Dispatch,
    Packet,
    PhpmqFrame,
    Publish,
    Reject,
    Requeue,
    ServerDecoder,
    Style,
    encode,
    forms,
    singles,
)
from support.protocols import PHPMQ
from support.vectors import load

ID = b"d7e7f68761d34838494b233148b5486c"
STYLES = [Style(width, line_end) for width in (36, 32) for line_end in (b"", b"\n", b"\r\n")]

PLAIN = Publish("q", (b"x",), None)
WITH_TTL = Publish("q", (b"x",), 60)
WITH_TTL_ZERO = Publish("q", (b"x",), 0)
CONSUME = Consume("q", 5)
ACK = Acknowledge("q", (ID,))
REQUEUE = Requeue("q", ID, 0)
REJECT = Reject("q", (ID,))


def style_after(
    frames: Iterable[PhpmqFrame], style: Style, dialect: Dialect | None = None, *, together: bool = False
) -> Style | None:
    decoder = ServerDecoder(dialect=dialect)
    for piece in [encode(frames, style)] if together else [encode([frame], style) for frame in frames]:
        decoder.feed(piece)
        assert decoder.error is None
    return decoder.style


class TestLearning:
    @pytest.mark.parametrize("style", STYLES, ids=str)
    def test_width_and_line_end_come_from_the_first_message(self, style: Style) -> None:
        learned = style_after([CONSUME], style)
        assert learned is not None
        assert (learned.width, learned.line_end) == (style.width, style.line_end)

    def test_there_is_no_style_before_the_first_packet_header(self) -> None:
        decoder = ServerDecoder()
        message = encode([CONSUME], Style())
        decoder.feed(message[:39])
        assert decoder.style is None
        decoder.feed(message[39:40])
        assert decoder.style == Style(32, b"", None)

    @pytest.mark.parametrize(
        ("frames", "width", "dispatch_ttl"),
        [
            ([CONSUME], 36, None),
            ([CONSUME], 32, None),
            ([ACK], 36, None),
            ([ACK, CONSUME], 32, None),
            ([PLAIN], 36, False),
            ([PLAIN], 32, False),
            ([CONSUME, PLAIN], 32, False),
            ([PLAIN, CONSUME, ACK], 32, False),
            ([WITH_TTL], 36, True),
            ([WITH_TTL], 32, True),
            ([WITH_TTL_ZERO], 36, True),
            ([REQUEUE], 36, True),
            ([REQUEUE], 32, True),
            ([REJECT], 36, True),
            ([REJECT], 32, True),
            ([PLAIN, WITH_TTL], 32, True),
            ([PLAIN, REJECT, PLAIN], 32, True),
            ([WITH_TTL, PLAIN], 32, True),
            ([REQUEUE, PLAIN, PLAIN], 36, True),
            ([PLAIN, PLAIN, PLAIN, REJECT, CONSUME], 36, True),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one chunk"])
    def test_the_dialect_shows_whether_dispatches_carry_a_ttl(
        self, frames: list[PhpmqFrame], width: int, dispatch_ttl: bool | None, together: bool
    ) -> None:
        assert style_after(frames, Style(width), together=together) == Style(width, b"", dispatch_ttl)

    @pytest.mark.parametrize(
        ("dialect", "width", "dispatch_ttl"),
        [
            (Dialect.WIDE, 36, False),
            (Dialect.NARROW, 32, False),
            (Dialect.TTL, 36, True),
            (Dialect.TTL, 32, True),
        ],
    )
    @pytest.mark.parametrize("frames", [[CONSUME], [PLAIN], [WITH_TTL, REQUEUE, REJECT]], ids=repr)
    def test_pinning_overrides_learning(
        self, frames: list[PhpmqFrame], dialect: Dialect, width: int, dispatch_ttl: bool
    ) -> None:
        assert style_after(frames, Style(width), dialect) == Style(width, b"", dispatch_ttl)

    def test_a_client_learns_too(self) -> None:
        decoder = ClientDecoder()
        decoder.feed(encode([Dispatch("q", (ID,), (b"x",), None)], Style(36, b"\n", False)))
        assert decoder.style == Style(36, b"\n", False)
        decoder.feed(encode([Dispatch("q", (ID,), (b"x",), (5,))], Style(36, b"\n", True)))
        assert decoder.style == Style(36, b"\n", None)  # both kinds came

    def test_dialects_have_the_names_of_the_option(self) -> None:
        assert [Dialect(name) for name in ("36", "32", "ttl")] == list(Dialect)


class TestRuns:
    @pytest.mark.parametrize("style", STYLES, ids=str)
    @pytest.mark.parametrize(
        "run",
        [
            Publish("q", tuple(b"%d" % i for i in range(500)), None),
            Publish("q", tuple(b"%d" % i for i in range(500)), 60),
            Acknowledge("q", (ID,) * 500),
            Reject("q", (ID, b"short") * 250),
        ],
        ids=lambda run: type(run).__name__,
    )
    def test_a_run_is_one_frame(self, run: PhpmqFrame, style: Style) -> None:
        decoder = ServerDecoder()
        assert decoder.feed(encode([CONSUME], style)) == [CONSUME]
        assert decoder.feed(encode([run], style)) == [run]

    @pytest.mark.parametrize("style", STYLES, ids=str)
    @pytest.mark.parametrize("ttls", [None, tuple(range(500))], ids=["without TTL", "with TTL"])
    def test_a_run_of_dispatches_is_one_frame(self, style: Style, ttls: tuple[int, ...] | None) -> None:
        chosen = Style(style.width, style.line_end, ttls is not None)
        run = Dispatch("q", (ID,) * 500, tuple(b"%d" % i for i in range(500)), ttls)
        decoder = ClientDecoder()
        first = encode([Dispatch("q", (ID,), (b"",), None)], style)
        decoder.feed(first)
        assert decoder.feed(encode([run], chosen)) == [run]

    def test_the_first_message_of_a_connection_comes_alone(self) -> None:
        run = Publish("q", (b"a", b"b", b"c"), None)
        frames = ServerDecoder().feed(encode([run], Style()))
        assert frames == [Publish("q", (b"a",), None), Publish("q", (b"b", b"c"), None)]

    def test_a_message_is_delivered_at_its_last_content_byte(self) -> None:
        for style in STYLES:
            message = encode([WITH_TTL], style).removesuffix(style.line_end)
            decoder = ServerDecoder()
            assert decoder.feed(message) == [WITH_TTL]
            assert decoder.between_messages
            assert decoder.close() is None

    def test_a_stream_may_end_with_the_optional_line_end(self) -> None:
        decoder = ServerDecoder()
        decoder.feed(encode([PLAIN], Style(line_end=b"\r\n")).removesuffix(b"\r\n"))
        decoder.feed(b"\r")
        assert not decoder.between_messages
        decoder.feed(b"\n")
        assert decoder.between_messages
        assert decoder.close() is None

    def test_writes_of_1024_bytes_as_the_php_library_makes_them(self) -> None:
        payloads = tuple(bytes([i]) * (700 + i) for i in range(100))
        stream = encode([Publish("orders", payloads, None)], Style())
        decoder = ServerDecoder()
        frames = [frame for at in range(0, len(stream), 1024) for frame in decoder.feed(stream[at : at + 1024])]
        assert list(singles(frames)) == [Publish("orders", (payload,), None) for payload in payloads]

    def test_singles_take_every_batch_apart(self) -> None:
        frames: list[PhpmqFrame] = [
            Publish("q", (b"a", b"b"), 5),
            CONSUME,
            Dispatch("q", (b"1", b"2"), (b"a", b"b"), None),
            Dispatch("q", (b"1", b"2"), (b"a", b"b"), (0, 9)),
            Acknowledge("q", (b"1", b"2")),
            REQUEUE,
            Reject("q", (b"1", b"2")),
        ]
        assert list(singles(frames)) == [
            Publish("q", (b"a",), 5),
            Publish("q", (b"b",), 5),
            CONSUME,
            Dispatch("q", (b"1",), (b"a",), None),
            Dispatch("q", (b"2",), (b"b",), None),
            Dispatch("q", (b"1",), (b"a",), (0,)),
            Dispatch("q", (b"2",), (b"b",), (9,)),
            Acknowledge("q", (b"1",)),
            Acknowledge("q", (b"2",)),
            REQUEUE,
            Reject("q", (b"1",)),
            Reject("q", (b"2",)),
        ]


class TestEncoder:
    @pytest.mark.parametrize(
        ("frame", "text"),
        [
            (Publish("", (b"",), None), "a queue name has 1 to 255 bytes, not 0"),
            (Publish("n" * 256, (b"",), None), "a queue name has 1 to 255 bytes, not 256"),
            (Consume("ü" * 128, 1), "a queue name has 1 to 255 bytes, not 256"),
            (Dispatch("", (ID,), (b"",), None), "a queue name has 1 to 255 bytes, not 0"),
            (Publish("q", (b"",), -1), "a time to live is 0 to 4294967295 seconds, not -1"),
            (Publish("q", (b"",), 2**32), "a time to live is 0 to 4294967295 seconds, not 4294967296"),
            (Requeue("q", ID, 2**32), "a time to live is 0 to 4294967295 seconds, not 4294967296"),
            (Dispatch("q", (ID,), (b"",), (-1,)), "a time to live is 0 to 4294967295 seconds, not -1"),
            (Consume("q", -1), "a count has no sign, unlike -1"),
            (Consume("q", 10**33), "a count has 1 to 33 bytes, not 34"),
            (Acknowledge("q", (ID, b"e" * 256)), "a message ID has 0 to 255 bytes, not 256"),
            (Reject("q", (b"e" * 256,)), "a message ID has 0 to 255 bytes, not 256"),
            (Requeue("q", b"e" * 256, 0), "a message ID has 0 to 255 bytes, not 256"),
            (Dispatch("q", (b"e" * 256,), (b"",), None), "a message ID has 0 to 255 bytes, not 256"),
            (
                Dispatch("q", (ID, ID), (b"",), None),
                "a dispatch has equal numbers of IDs, payloads and TTLs, not 2, 1 and 2",
            ),
            (
                Dispatch("q", (ID,), (b"",), (1, 2)),
                "a dispatch has equal numbers of IDs, payloads and TTLs, not 1, 1 and 2",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__,
    )
    def test_frames_that_cannot_be_expressed(self, frame: PhpmqFrame, text: str) -> None:
        with pytest.raises(ValueError, match=f"^{text}$"):
            encode([frame], Style())

    def test_a_name_that_is_not_text(self) -> None:
        with pytest.raises(ValueError, match="surrogates"):
            encode([Consume("\udcff", 1)], Style())

    @pytest.mark.parametrize("width", [0, 31, 33, 35])
    def test_other_widths(self, width: int) -> None:
        with pytest.raises(ValueError, match=f"^packet headers are 32 or 36 wide, not {width}$"):
            Style(width)

    @pytest.mark.parametrize("line_end", [b"\r", b"\n\n", b" "])
    def test_other_line_ends(self, line_end: bytes) -> None:
        with pytest.raises(ValueError, match=r"^a line end is b'', LF or CRLF, not "):
            Style(line_end=line_end)

    def test_the_style_says_whether_a_dispatch_has_a_ttl(self) -> None:
        with_ttl, without = Dispatch("q", (ID,), (b"x",), (7,)), Dispatch("q", (ID,), (b"x",), None)
        zero = Dispatch("q", (ID,), (b"x",), (0,))
        assert encode([with_ttl], Style(dispatch_ttl=False)) == encode([without], Style(dispatch_ttl=False))
        assert encode([without], Style(dispatch_ttl=True)) == encode([zero], Style(dispatch_ttl=True))

    def test_the_style_can_leave_it_to_each_dispatch(self) -> None:
        frames = [Dispatch("q", (ID,), (b"x",), (0,)), Dispatch("q", (ID,), (b"x",), None)]
        each = [encode([frame], Style(dispatch_ttl=frame.ttls is not None)) for frame in frames]
        assert encode(frames, Style(dispatch_ttl=None)) == b"".join(each)
        assert ClientDecoder().feed(b"".join(each)) == frames

    def test_no_frames_are_no_bytes(self) -> None:
        empty: list[PhpmqFrame] = [Publish("q", (), None), Publish("q", (), 5), Acknowledge("q", ()), Reject("q", ())]
        for style in STYLES:
            assert encode([], style) == encode(empty, style) == encode([Dispatch("q", (), (), None)], style) == b""

    def test_more_times_to_live_than_the_cache_holds(self) -> None:
        frames = [Publish("q", (b"x",), ttl) for ttl in range(10_000)]
        assert list(singles(ServerDecoder().feed(encode(frames, Style())))) == frames


class CountedBytes(bytes):
    """A chunk that counts the bytes copied out of it."""

    copied = 0

    def __getitem__(self, key: SupportsIndex | slice) -> bytes:  # type: ignore[override]
        assert isinstance(key, slice)
        found = super().__getitem__(key)
        self.copied += len(found)
        return found


#: Traffic in which the fast pass finds no long runs or gives up late in each message.
HARD = {
    "two queues in turn": [Publish("a", (b"x" * 50,), None), Publish("b", (b"x" * 50,), None)],
    "publish and acknowledge in turn": [Publish("q", (b"x" * 50,), None), ACK],
    "times to live in turn": [Publish("q", (b"x" * 50,), 5), Publish("q", (b"x" * 50,), 6)],
    "consume only": [CONSUME],
    "one run": [Publish("q", (b"x" * 50,), None)],
    "long names": [Publish("n" * 255, (b"",), None), Publish("m" * 255, (b"",), 5)],
    "sizes that are not remembered": [Publish("q", (b"x" * 5000,), None)],
}


class TestCost:
    @pytest.mark.parametrize("frames", HARD.values(), ids=HARD.keys())
    @pytest.mark.parametrize("style", STYLES, ids=str)
    def test_any_chunk_is_copied_a_few_times_at_most(self, frames: list[PhpmqFrame], style: Style) -> None:
        once = encode(frames, style)
        for repeats in (10, 1000):
            chunk = CountedBytes(once * repeats)
            decoder = ServerDecoder()
            assert list(singles(decoder.feed(chunk))) == frames * repeats
            assert chunk.copied < 4 * len(chunk)

    def test_a_long_run_is_copied_about_once(self) -> None:
        chunk = CountedBytes(encode([Publish("q", (b"x" * 1000,) * 1000, None)], Style()))
        ServerDecoder().feed(chunk)
        assert chunk.copied < 1.1 * len(chunk)

    def test_other_orders_of_packets_cost_no_more(self) -> None:
        once = b"H0100103P01%029dqP05%029d7P02%029d%b" % (1, 1, 50, b"x" * 50)
        chunk = CountedBytes(once * 1000)
        assert len(ServerDecoder().feed(chunk)) == 1000
        assert chunk.copied < 4 * len(chunk)

    def test_a_large_payload_is_held_in_its_pieces_and_copied_once(self) -> None:
        size = 16 * 2**20
        head = encode([CONSUME], Style()) + b"H0100102P01%029dqP02%029d" % (1, size)
        decoder = ServerDecoder()
        decoder.feed(head)
        pieces = [CountedBytes(bytes([i]) * 2**16) for i in range(256)]
        found: list[PhpmqFrame] = []
        for i, piece in enumerate(pieces):
            assert decoder.held == i * 2**16
            found += decoder.feed(piece)
        assert found == [Publish("q", (b"".join(pieces),), None)]
        assert sum(piece.copied for piece in pieces) == 0  # held as views; one join made the payload
        assert decoder.held == 0


def test_an_oversized_payload_is_reported_with_its_size_and_the_limit() -> None:
    decoder = ServerDecoder(max_payload=4)
    assert decoder.feed(encode([Publish("q", (b"12345",), None)], Style())) == []
    assert decoder.error is not None
    assert (decoder.error.code, decoder.error.size, decoder.error.limit) == ("payload-too-large", 5, 4)


class TestMemory:
    @pytest.mark.parametrize("packet", [b"P01", b"P02", b"P03"])
    @pytest.mark.parametrize("size", [2**31, 2**32, 10**29 - 1])
    def test_an_announcement_costs_nothing(self, packet: bytes, size: int) -> None:
        start = {b"P01": b"H0100102", b"P02": b"H0100102P01%029dq" % 1, b"P03": b"H0100402P01%029dq" % 1}[packet]
        decoder = ServerDecoder()
        decoder.feed(encode([PLAIN], Style()))
        tracemalloc.start()
        decoder.feed(start + packet + b"%029d" % size)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert decoder.error is not None
        assert decoder.error.code in ("payload-too-large", "bad-size")
        assert decoder.held == 0
        assert peak < 64 * 1024

    def test_a_payload_within_the_limit_is_not_allocated_before_it_arrives(self) -> None:
        decoder = ServerDecoder(max_payload=2**40)
        decoder.feed(encode([PLAIN], Style()))
        tracemalloc.start()
        decoder.feed(b"H0100102P01%029dqP02%029d" % (1, 2**40) + b"x" * 1000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert decoder.error is None
        assert decoder.held == 1000
        assert peak < 64 * 1024

    def test_the_cache_is_bounded(self) -> None:
        form = forms.form_of(32, b"")
        for size in range(3000, 9000):
            assert form.sizes[Packet.CONTENT].of(form.joints[Packet.CONTENT].of(size)) == size
        for ttl in range(9000):
            assert form.tails.of(ttl).endswith(b"%d" % ttl)
        for memo in (form.sizes[Packet.CONTENT], form.joints[Packet.CONTENT], form.tails):
            assert len(memo.known) <= forms.REMEMBERED


def test_every_error_code_is_documented_and_has_a_vector() -> None:
    page = (Path(__file__).parents[2] / "docs/protocols/phpmq.md").read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    shown = {vector.error["code"] for vector in load("rejected") if vector.codec is PHPMQ and vector.error}
    assert documented == shown
