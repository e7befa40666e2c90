"""Search in the messages of one queue and state. Each request examines a bounded number of messages.

The broker's facts about a message (ID, reason, deliveries) are compared first, then those in the journal, so that
payloads are read only for possible matches.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrowsedMessage, BrowsedMessages
from penstock.admin.journal_view import JournalView
from penstock.admin.resources.messages import MessagesQuery, Search
from penstock.admin.times import to_micros
from penstock.admin.watched_broker import WatchedBroker
from penstock.journal.format.rows import MessageRow
from penstock.schema import Reason

#: Messages that one request examines, and payload bytes that it reads.
EXAMINED = 20_000
READ_BYTES = 64 * 2**20
#: Messages, and their bytes, that are read at a time.
READ_AT_ONCE = 250
GROUP_BYTES = 8 * 2**20

_REASONS = {reason.name.lower(): int(reason) for reason in Reason}


class SearchTerms(NamedTuple):
    """The terms of a search; all must match."""

    payload: bytes = b""
    other_payload: bytes = b""
    id: str = ""
    correlation_id: bytes = b""
    since: int | None = None
    until: int | None = None
    reason: int = 0
    deliveries: int = 0

    @classmethod
    def parse(cls, terms: Search | MessagesQuery) -> Self:
        """The terms in a request."""
        return cls(
            terms.text.encode(),
            bytes.fromhex(terms.hex),
            terms.id.lower(),
            terms.correlation_id.encode(),
            to_micros(terms.published_from),
            to_micros(terms.published_to),
            _REASONS[terms.reason] if terms.reason else 0,
            terms.deliveries,
        )

    @property
    def match_all(self) -> bool:
        """Whether all messages match."""
        return self == SearchTerms()

    def match_item(self, item: BrowsedMessage, identity: bytes) -> bool:
        """Whether the broker's facts about a message match."""
        raw = item.asked or identity + item.position.to_bytes(8, "big")
        return (
            (not self.id or raw.hex().startswith(self.id))
            and (not self.reason or item.reason == self.reason)
            and item.deliveries >= self.deliveries
        )

    def match_message(self, message: MessageRow) -> bool:
        """Whether the message in the journal matches."""
        at = message.published_at or message.at
        return (
            self.payload in message.payload
            and self.other_payload in message.payload
            and (not self.correlation_id or message.correlation_id == self.correlation_id)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )

    @property
    def need_message(self) -> bool:
        """Whether messages have to be read from the journal."""
        return not self._replace(id="", reason=0, deliveries=0).match_all


class Matches(NamedTuple):
    """The result. ``after`` is the cursor for the next request, empty at the end."""

    items: list[BrowsedMessage]
    messages: dict[int, MessageRow]
    after: tuple[int, ...]
    examined: int
    searched_bytes: int
    total: int


async def search_messages(
    broker: WatchedBroker,
    journal: JournalView,
    asked: requests.Browse,
    wanted: SearchTerms,
    limit: int,
    identity: bytes,
) -> Matches:
    """The first messages after ``asked.after`` that match, as the broker and the journal store them."""
    search = _Search(journal, wanted, limit)
    after, examined = asked.after, 0
    while True:
        piece = min(requests.PIECE, limit - len(search.items)) if wanted.match_all else requests.PIECE
        part = await broker.ask(msgspec.structs.replace(asked, after=after, limit=piece), BrowsedMessages)
        candidates = [each for each in enumerate(part.items) if wanted.match_item(each[1], identity)]
        last = await search.examine(candidates)
        seen = len(part.items) if last is None else last + 1
        examined += seen
        ended = not part.after and seen == len(part.items)
        if ended or search.full or examined >= EXAMINED:
            after = () if ended else _cursor(part, seen - 1, asked)
            return Matches(search.items, search.messages, after, examined, search.size, part.total)
        after = part.after


class _Search:
    """Collects matches up to the limit."""

    def __init__(self, journal: JournalView, wanted: SearchTerms, limit: int) -> None:
        self._journal = journal
        self._wanted = wanted
        self._limit = limit
        self.items: list[BrowsedMessage] = []
        self.messages: dict[int, MessageRow] = {}
        self.size = 0

    @property
    def full(self) -> bool:
        return len(self.items) >= self._limit or self.size > READ_BYTES

    async def examine(self, candidates: list[tuple[int, BrowsedMessage]]) -> int | None:
        """Read candidates and keep the matches. Returns the number of the last one examined, None if all were."""
        at = 0
        while at < len(candidates):
            group = self._group(candidates[at:])
            read = await self._journal.messages([item.place for _, item in group])
            for number, item in group:
                at += 1
                self.size += item.size
                message = read.get(item.place)
                if message is None and self._wanted.need_message:
                    continue
                if message is None or self._wanted.match_message(message):
                    self.items.append(item)
                    if message is not None:
                        self.messages[item.place] = message
                if self.full:
                    return number
        return None

    def _group(self, candidates: list[tuple[int, BrowsedMessage]]) -> list[tuple[int, BrowsedMessage]]:
        """The next candidates to read at once."""
        most = READ_AT_ONCE if self._wanted.need_message else min(READ_AT_ONCE, self._limit - len(self.items))
        group: list[tuple[int, BrowsedMessage]] = []
        size = 0
        for each in candidates[:most]:
            size += each[1].size
            if group and size > GROUP_BYTES:
                break
            group.append(each)
        return group


def _cursor(part: BrowsedMessages, index: int, asked: requests.Browse) -> tuple[int, ...]:
    """The cursor after this message."""
    item = part.items[index]
    if asked.state == "out":
        return (0, part.begin + index + 1, item.position)
    return (item.priority, item.rank, item.position)
