"""Connections, locks, readers, leases and writers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import ConnectionFull, ConnectionRow, ConnectionRows, LockRows
from penstock.admin.http import Answer, Request
from penstock.admin.pages import cursor_of, numbers_of, page, values_of
from penstock.admin.problems import fail
from penstock.admin.resources.common import Done, Page
from penstock.admin.resources.peers import (
    ConnectionDetail,
    ConnectionsQuery,
    ConnectionSummary,
    Lease,
    Lock,
    LocksQuery,
    Reader,
    Subscription,
    Writer,
)
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.endpoint.readers_and_writers import DropReader, DropWriter, ReaderRow, Readers, WriterRow, Writers
from penstock.patterns import fits_queue

#: Pieces that are asked for to fill one page: a filter that finds little goes on with the next request.
PIECES = 20


class PeerHandlers:
    """Handles what is about peers."""

    def __init__(self, broker: WatchedBroker) -> None:
        self._broker = broker
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "connections": self.connections,
            "connection": self.connection,
            "close-connection": self.close,
            "locks": self.locks,
            "release-lock": self.release,
            "readers": self.readers,
            "forget-reader": self.forget_reader,
            "leases": self.leases,
            "writers": self.writers,
            "forget-writer": self.forget_writer,
        }

    # Connections

    async def connections(self, request: Request) -> Answer:
        """All of them are asked for, piece by piece; there are 10,000 at most."""
        query: ConnectionsQuery = request.query
        rows: list[ConnectionRow] = []
        after = 0
        while True:
            part = await self._broker.ask(requests.Connections(after=after, queue=query.queue), ConnectionRows)
            rows += (row for row in part.rows if _is_wanted(row, query))
            after = part.after
            if not part.more:
                break
        down = query.order == "descending"
        key: Callable[[ConnectionRow], tuple[int, int]] = lambda row: (getattr(row, query.sort), row.id)  # noqa: E731
        behind = numbers_of(query.cursor, 2)
        total = len(rows)
        rows.sort(key=key, reverse=down)
        if behind is not None:
            rows = [row for row in rows if (key(row) < behind if down else key(row) > behind)]
        items = [ConnectionSummary(**_told(row)) for row in rows[: query.limit + 1]]
        cursor: Callable[[ConnectionSummary], str] = lambda each: cursor_of(getattr(each, query.sort), each.id)  # noqa: E731
        return Answer(page(items, query.limit, cursor, Page[ConnectionSummary], total))

    async def connection(self, request: Request) -> Answer:
        """One."""
        asked = requests.ConnectionNumbered(id=_number(request))
        found = await self._broker.ask(asked, ConnectionFull)
        wants = [
            Subscription(queue=queue, window=window, credit=credit, dead=dead)
            for queue, window, credit, dead in found.consumers
        ]
        return Answer(ConnectionDetail(**_told(found.row), subscriptions=wants))

    async def close(self, request: Request) -> Answer:
        """Close one."""
        number = _number(request)
        found = await self._broker.ask(requests.ConnectionNumbered(id=number), ConnectionFull)
        await self._broker.ask(requests.CloseConnection(id=number, by=request.caller.by), bool)
        return Answer(Done(), before={"protocol": found.row.protocol, "peer": found.row.peer, "out": found.row.out})

    # Locks

    async def locks(self, request: Request) -> Answer:
        """Those that end first, of queues that the caller may see."""
        query: LocksQuery = request.query
        after = numbers_of(query.cursor, 2) or (0, 0)
        found: list[tuple[Lock, tuple[int, int]]] = []
        following: tuple[int, int] | None = (after[0], after[1])
        for _ in range(PIECES):
            assert following is not None
            part = await self._broker.ask(requests.Locks(after=following), LockRows)
            now = part.now
            for row in part.rows:
                following = (row.until, row.serial)
                seen = request.caller.may("view", row.namespace, row.name)
                if seen and fits_queue(query.pattern, row.namespace, row.name):
                    found.append((_lock(row, now), following))
                if len(found) >= query.limit:
                    break
            else:
                following = part.after
            if len(found) >= query.limit or following is None:
                break
        items = [lock for lock, _ in found]
        return Answer(Page[Lock](items=items, next=cursor_of(*following) if following else None))

    async def release(self, request: Request) -> Answer:
        """Give a locked message back."""
        asked = requests.ReleaseLock(
            id=request.message_id, allowed=request.caller.patterns("operate"), by=request.caller.by
        )
        queue = await self._broker.ask(asked, str)
        return Answer(Done(), target=f"{queue}/{request.places['id']}")

    # Readers and writers

    async def readers(self, request: Request) -> Answer:
        """All of them, by name: there are 1,000 at most."""
        rows = await self._broker.ask(Readers(), list[ReaderRow])
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        wanted = sorted((row for row in rows if request.query.contains in row.reader), key=lambda row: row.reader)
        rest = [row for row in wanted if after is None or row.reader > after[0]]
        items = [
            Reader(
                name=row.reader,
                view=row.view,
                where=row.where,
                position=row.position,
                lag_rows=row.lag_rows,
                lag_seconds=row.lag_seconds,
                lost_from=row.lost_from,
                pin=row.pin,
                peer=row.peer,
                heard_at=moment(row.at),
                leased=row.leased,
                owner=row.owner,
            )
            for row in rest[: request.query.limit + 1]
        ]
        return Answer(page(items, request.query.limit, _by_name, Page[Reader], len(wanted)))

    async def forget_reader(self, request: Request) -> Answer:
        """Drop its pin and its leases."""
        asked = DropReader(name=request.places["name"], by=request.caller.by, over="http")
        if not await self._broker.ask(asked, bool):
            fail("not-found", f"there is no reader {request.places['name']!r}", field="path.name")
        return Answer(Done())

    async def leases(self, request: Request) -> Answer:
        """By position."""
        after = numbers_of(request.query.cursor, 1)
        asked = requests.Leases(after=after[0] if after else 0, limit=request.query.limit + 1)
        rows = await self._broker.ask(asked, list[requests.LeaseRow])
        items = [
            Lease(
                position=row.position,
                reader=row.reader,
                queue=row.queue,
                messages=row.messages,
                since=moment(row.since),
                until=moment(row.until),
            )
            for row in rows
        ]
        return Answer(page(items, request.query.limit, lambda each: cursor_of(each.position), Page[Lease]))

    async def writers(self, request: Request) -> Answer:
        """By name."""
        after: tuple[str] | None = values_of(request.query.cursor, tuple[str])
        asked = Writers(after=after[0] if after else "", contains=request.query.contains, limit=request.query.limit + 1)
        rows = await self._broker.ask(asked, list[WriterRow])
        items = [
            Writer(
                name=row.writer,
                owner=row.owner,
                epoch=row.epoch,
                partitions=row.partitions,
                written_at=moment_or_none(row.at),
            )
            for row in rows
        ]
        return Answer(page(items, request.query.limit, _by_name, Page[Writer]))

    async def forget_writer(self, request: Request) -> Answer:
        """Its chunks would be taken again."""
        asked = DropWriter(name=request.places["name"], by=request.caller.by, over="http")
        if not await self._broker.ask(asked, bool):
            fail("not-found", f"there is no writer {request.places['name']!r}", field="path.name")
        return Answer(Done())


def _by_name(each: Reader | Writer) -> str:
    return cursor_of(each.name)


def _number(request: Request) -> int:
    text = request.places["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        fail("bad-request", f"a connection has a number, not {text[:64]!r}", field="path.id")
    return int(text)


def _is_wanted(row: ConnectionRow, query: ConnectionsQuery) -> bool:
    return (
        (not query.protocol or row.protocol == query.protocol)
        and (not query.contains or any(query.contains in text for text in (row.peer, row.subject, row.user)))
        and (not query.throttled or bool(row.throttled))
    )


def _told(row: ConnectionRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return {**values, "since": moment(row.since)}


def _lock(row: requests.LockRow, now: int) -> Lock:
    return Lock(
        message=row.id.hex(),
        position=row.position,
        queue=f"{row.namespace}/{row.name}",
        connection=row.connection,
        peer=row.peer.partition(" ")[2],
        since=moment(row.since),
        until=moment(row.until),
        seconds_left=max(0.0, round((row.until - now) / 1e6, 3)),
    )
