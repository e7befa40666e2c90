"""Search among the messages of one queue and state: a bounded number of them is looked at for each request.

What the broker knows of a message (ID, reason, deliveries) is compared first, then what the journal has, so that
payloads are only read of messages that could be wanted.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrowsedMessage, Items
from penstock.admin.journal import JournalView
from penstock.admin.resources.messages import MessagesQuery, Search
from penstock.admin.times import micros
from penstock.admin.watched_broker import WatchedBroker
from penstock.journal.format.rows import MessageRow
from penstock.schema import Reason

#: Messages that one request looks at, and payload bytes that it reads.
LOOKED_AT = 20_000
READ_BYTES = 64 * 2**20
#: Messages, and their bytes, that are read in one go.
READ_AT_ONCE = 250
GROUP_BYTES = 8 * 2**20

_REASONS = {reason.name.lower(): int(reason) for reason in Reason}


class SearchTerms(NamedTuple):
    """Terms, as they are compared."""

    payload: bytes = b""
    other_payload: bytes = b""
    id: str = ""
    correlation_id: bytes = b""
    since: int | None = None
    until: int | None = None
    reason: int = 0
    deliveries: int = 0

    @classmethod
    def of(cls, terms: Search | MessagesQuery) -> Self:
        """From what a request says."""
        return cls(
            terms.text.encode(),
            bytes.fromhex(terms.hex),
            terms.id.lower(),
            terms.correlation_id.encode(),
            micros(terms.published_from),
            micros(terms.published_to),
            _REASONS[terms.reason] if terms.reason else 0,
            terms.deliveries,
        )

    @property
    def anything(self) -> bool:
        """Whether all messages are wanted."""
        return self == SearchTerms()

    def may_be(self, item: BrowsedMessage, identity: bytes) -> bool:
        """Whether a message could be wanted, as far as the broker knows."""
        raw = item.asked or identity + item.position.to_bytes(8, "big")
        return (
            (not self.id or raw.hex().startswith(self.id))
            and (not self.reason or item.reason == self.reason)
            and item.deliveries >= self.deliveries
        )

    def fits(self, message: MessageRow) -> bool:
        """Whether it is, as far as the journal knows."""
        at = message.published_at or message.at
        return (
            self.payload in message.payload
            and self.other_payload in message.payload
            and (not self.correlation_id or message.correlation_id == self.correlation_id)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )

    @property
    def of_the_journal(self) -> bool:
        """Whether messages have to be read to know."""
        plain = self._replace(id="", reason=0, deliveries=0)
        return not plain.anything


class Matches(NamedTuple):
    """What was found. ``after`` is where to go on, empty at the end."""

    items: list[BrowsedMessage]
    messages: dict[int, MessageRow]
    after: tuple[int, ...]
    looked_at: int
    searched_bytes: int
    total: int


async def searched(
    broker: WatchedBroker,
    journal: JournalView,
    asked: requests.Browse,
    wanted: SearchTerms,
    limit: int,
    identity: bytes,
) -> Matches:
    """The first messages behind a place that are wanted, with what the journal has of them."""
    search = _Search(journal, wanted, limit)
    after, looked_at = asked.after, 0
    while True:
        piece = min(requests.PIECE, limit - len(search.items)) if wanted.anything else requests.PIECE
        part = await broker.ask(msgspec.structs.replace(asked, after=after, limit=piece), Items)
        candidates = [each for each in enumerate(part.items) if wanted.may_be(each[1], identity)]
        last = await search.look_at(candidates)
        seen = len(part.items) if last is None else last + 1
        looked_at += seen
        ended = not part.after and seen == len(part.items)
        if ended or search.full or looked_at >= LOOKED_AT:
            after = () if ended else _behind(part, seen - 1, asked)
            return Matches(search.items, search.messages, after, looked_at, search.size, part.total)
        after = part.after


class _Search:
    """Gathers what is wanted, until there is enough."""

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

    async def look_at(self, candidates: list[tuple[int, BrowsedMessage]]) -> int | None:
        """Read messages and keep those that are wanted. Returns the last that was looked at, None if all were."""
        at = 0
        while at < len(candidates):
            group = self._group(candidates[at:])
            read = await self._journal.messages([item.place for _, item in group])
            for number, item in group:
                at += 1
                self.size += item.size
                message = read.get(item.place)
                if message is None and self._wanted.of_the_journal:
                    continue
                if message is None or self._wanted.fits(message):
                    self.items.append(item)
                    if message is not None:
                        self.messages[item.place] = message
                if self.full:
                    return number
        return None

    def _group(self, candidates: list[tuple[int, BrowsedMessage]]) -> list[tuple[int, BrowsedMessage]]:
        """So many as may be wanted, and are read in one go."""
        most = READ_AT_ONCE if self._wanted.of_the_journal else min(READ_AT_ONCE, self._limit - len(self.items))
        group: list[tuple[int, BrowsedMessage]] = []
        size = 0
        for each in candidates[:most]:
            size += each[1].size
            if group and size > GROUP_BYTES:
                break
            group.append(each)
        return group


def _behind(part: Items, index: int, asked: requests.Browse) -> tuple[int, ...]:
    """Where a request goes on that has seen this message last."""
    item = part.items[index]
    if asked.state == "out":
        return (0, part.begin + index + 1, item.position)
    return (item.priority, item.rank, item.position)
