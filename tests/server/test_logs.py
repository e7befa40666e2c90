"""The log: readable or JSON, rate-limited, and free of terminal control bytes."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from penstock.server.logs import BURST, PERIOD, LibraryLog, Logger, printable

#: Bytes in a peer's name that must not reach a terminal: colours, line feeds, bells, C1 codes, bidi overrides.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\nfake line\x7f\x9b2J\u202e\u2028\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_without_a_terminal() -> None:
    stream = io.StringIO()
    Logger(stream, clock=Clock()).warning("protocol error", peer="10.0.0.1", offset=7)
    expected = {"at": 1_700_000_000.0, "level": "warning", "event": "protocol error", "peer": "10.0.0.1", "offset": 7}
    assert lines_of(stream) == [expected]


def test_readable_on_a_terminal() -> None:
    stream = Terminal()
    Logger(stream).warning("protocol error", peer="10.0.0.1", reason="bad magic")
    assert stream.getvalue().endswith('warning protocol error  peer=10.0.0.1  reason="bad magic"\n')


@pytest.mark.parametrize("value", [HOSTILE, HOSTILE.encode("utf-8", "surrogatepass"), b"\xff\xfe\x1b[2J"])
@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_control_bytes_from_a_peer_are_escaped(stream: io.StringIO, value: object) -> None:
    stream.truncate(0)
    Logger(stream).warning("access denied", queue=value)
    text = stream.getvalue().lstrip("\0")
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
    assert text.isascii()


def test_a_value_can_not_imitate_another_field() -> None:
    stream = Terminal()
    Logger(stream).info("x", queue='a"  right=administer', reason="")
    assert stream.getvalue().endswith('x  queue="a\\"  right=administer"  reason=""\n')


def test_escapes_are_unambiguous() -> None:
    assert printable("\x1b") == "\\x1b"
    assert printable("\\x1b") == "\\\\x1b"
    assert printable("Straße ☃") == "Straße ☃"


def test_a_flood_of_one_event_does_not_suppress_other_events() -> None:
    stream, clock = io.StringIO(), Clock()
    log = Logger(stream, clock=clock)
    for number in range(BURST + 80):
        log.warning("flood", number=number)
    log.warning("other")
    assert [line["event"] for line in lines_of(stream)] == ["flood"] * BURST + ["other"]


def test_suppressed_events_are_reported_even_if_no_more_follow() -> None:
    stream, clock = io.StringIO(), Clock()
    log = Logger(stream, clock=clock)
    for _ in range(BURST + 80):
        log.warning("flood")
    log.report_suppressed()
    assert len(lines_of(stream)) == BURST
    clock.now += PERIOD
    log.report_suppressed()
    log.report_suppressed()
    assert [line.get("suppressed") for line in lines_of(stream)[BURST:]] == [80]


def test_after_its_period_an_event_is_written_again() -> None:
    stream, clock = io.StringIO(), Clock()
    log = Logger(stream, clock=clock)
    for _ in range(BURST + 5):
        log.warning("flood")
    clock.now += PERIOD
    log.warning("flood", number=1)
    assert [(line.get("suppressed"), line.get("number")) for line in lines_of(stream)[BURST:]] == [(5, None), (None, 1)]


def test_all_suppressed_events_are_reported_at_the_end() -> None:
    stream = io.StringIO()
    log = Logger(stream, clock=Clock())
    for _ in range(BURST + 3):
        log.warning("flood")
    log.report_suppressed(everything=True)
    assert lines_of(stream)[-1]["suppressed"] == 3


def test_a_clock_that_goes_back_does_not_silence_an_event() -> None:
    stream, clock = io.StringIO(), Clock()
    log = Logger(stream, clock=clock)
    for _ in range(BURST + 1):
        log.warning("flood")
    clock.now -= 3600
    log.warning("flood", number=1)
    assert lines_of(stream)[-1]["number"] == 1


def test_levels_below_the_one_asked_for_are_not_written() -> None:
    stream = io.StringIO()
    log = Logger(stream, level="warning")
    log.debug("a")
    log.info("b")
    log.error("c")
    assert [line["event"] for line in lines_of(stream)] == ["c"]


def test_a_log_that_can_not_be_written_raises_nothing() -> None:
    stream = io.StringIO()
    log = Logger(stream)
    stream.close()
    log.error("this is lost")


class TestLibraries:
    def logger(self, stream: io.StringIO) -> logging.Logger:
        library = logging.Logger("some.library", logging.DEBUG)
        library.addHandler(LibraryLog(Logger(stream, clock=Clock(), level="debug")))
        return library

    def test_their_lines_are_in_our_format(self) -> None:
        stream = io.StringIO()
        logger = self.logger(stream)
        logger.warning("%s took %s", "this", "long")
        try:
            raise OSError("gone")
        except OSError:
            logger.exception("failed")
        logger.debug("x")
        first, second, third = lines_of(stream)
        assert first == {
            "at": 1_700_000_000.0, "level": "warning", "event": "a library says", "library": "some.library",
            "text": "this took long",
        }  # fmt: skip
        assert (second["level"], second["text"], second["error"]) == ("error", "failed", "OSError('gone')")
        assert third["level"] == "debug"

    def test_they_are_escaped_and_limited(self) -> None:
        stream = Terminal()
        logger = self.logger(stream)
        for _ in range(BURST + 80):
            logger.warning(HOSTILE)
        assert len(stream.getvalue().splitlines()) == BURST
        assert stream.getvalue().replace("\n", "").isascii()
