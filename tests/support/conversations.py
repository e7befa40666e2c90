"""The conversations on the protocol pages, read from ``conversation`` blocks and replayed against a broker.

The notation is described on the pages. The first line of a block names the listener and its options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.brokers import Peer

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
_BLOCK = re.compile(r"^```conversation\nlistener (\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TOKEN = re.compile(r"[0-9a-f]{2}|\{text\}|\{[\w-]+:\d+\}")


class Step(NamedTuple):
    """The side that speaks (``>`` or ``<``; ``---``: the connection ends), and its bytes and placeholders."""

    who: str
    tokens: tuple[str, ...] = ()


class Conversation(NamedTuple):
    """A block of a page."""

    page: str
    number: int
    protocol: str
    options: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.page} {self.number}"


def conversations() -> list[Conversation]:
    """All blocks of all pages."""
    blocks = []
    for page in sorted(PAGES.glob("*.md")):
        for number, (protocol, options, text) in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            blocks.append(Conversation(page.name, number, protocol, options.strip(), tuple(_steps(text))))
    return blocks


def _steps(text: str) -> Iterator[Step]:
    step: Step | None = None
    for line in text.splitlines():
        said = line.partition(";")[0].strip()
        who = "---" if said == "---" else said[:1] if said[:1] in "<>" else ""
        if who and said:
            if step is not None:
                yield step
            step = Step(who)
        words = tuple((said[1:] if who in ("<", ">") else "" if who else said).split())
        assert all(_TOKEN.fullmatch(word) for word in words), f"not a line of a conversation: {line}"
        if words:
            assert step is not None
            step = Step(step.who, step.tokens + words)
    if step is not None:
        yield step


class Walk:
    """One conversation with a broker. ``transcript`` holds the bytes of each side, connection by connection."""

    def __init__(self, connect: Callable[[], Peer]) -> None:
        self._connect = connect
        self._peer = connect()
        self._known: dict[str, bytes] = {}
        self.transcript: list[dict[str, bytes]] = [{"<": b"", ">": b""}]

    def run(self, conversation: Conversation) -> None:
        """Send the client's bytes, and compare each byte of the server's."""
        for who, tokens in conversation.steps:
            if who == "---":
                self._peer.close()
                self._peer = self._connect()
                self.transcript.append({"<": b"", ">": b""})
            elif who == ">":
                said = b"".join(self._known[_name(token)] if "{" in token else bytes.fromhex(token) for token in tokens)
                self._peer.send(said)
                self.transcript[-1][">"] += said
            else:
                self.transcript[-1]["<"] += b"".join(map(self._heard, tokens))

    def _heard(self, token: str) -> bytes:
        if token == "{text}":
            size = self._peer.read(1)
            return size + self._peer.read(size[0])
        if "{" not in token:
            self._peer.expect(bytes.fromhex(token))
            return bytes.fromhex(token)
        data = self._peer.read(int(token[1:-1].rpartition(":")[2]))
        assert self._known.setdefault(_name(token), data) == data
        return data


def _name(token: str) -> str:
    return token[1:].partition(":")[0]
