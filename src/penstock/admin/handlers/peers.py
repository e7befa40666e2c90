"""Connections, locks, readers, leases and writers."""

from __future__ import annotations

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import ConnectionDetails, ConnectionRow, ConnectionRows, LockRows
from penstock.admin.http import Request, Response
from penstock.admin.pages import decode_cursor, decode_numbers, encode_cursor, page, slice_page
from penstock.admin.problems import fail
from penstock.admin.resources.common import Done, Page, resource_of
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
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.companions.readers_and_writers import DropReader, DropWriter, ReaderRow, Readers, WriterRow, Writers
from penstock.patterns import fits_queue

#: Pieces fetched to fill one page: if a filter matches little, the page may be short.
MOST_PIECES = 20


class PeerHandlers:
    """Handles requests about peers."""

    def __init__(self, broker: WatchedBroker) -> None:
        self._broker = broker

    # Connections

    async def connections(self, request: Request) -> Response:
        """Fetches all connections, at most 10,000, in pieces."""
        query: ConnectionsQuery = request.query
        rows: list[ConnectionRow] = []
        after = 0
        while True:
            part = await self._broker.ask(requests.Connections(after=after, queue=query.queue), ConnectionRows)
            rows += (row for row in part.rows if _matches(row, query))
            after = part.after
            if not part.more:
                break
        descending = query.order == "descending"
        key = lambda row: (getattr(row, query.sort), row.id)  # noqa: E731
        rows.sort(key=key, reverse=descending)
        shown, following = slice_page(rows, query, key, tuple[int, int], descending=descending)
        items = [resource_of(ConnectionSummary, row, since=to_datetime(row.since)) for row in shown]
        return Response(Page[ConnectionSummary](items=items, next=following, total=len(rows)))

    async def connection(self, request: Request) -> Response:
        """One connection."""
        asked = requests.DescribeConnection(id=_number(request))
        found = await self._broker.ask(asked, ConnectionDetails)
        subscriptions = [
            Subscription(queue=queue, window=window, credit=credit, dead=dead)
            for queue, window, credit, dead in found.consumers
        ]
        since = to_datetime(found.row.since)
        return Response(resource_of(ConnectionDetail, found.row, since=since, subscriptions=subscriptions))

    async def close_connection(self, request: Request) -> Response:
        """Close a connection."""
        number = _number(request)
        found = await self._broker.ask(requests.DescribeConnection(id=number), ConnectionDetails)
        await self._broker.ask(requests.CloseConnection(id=number, by=request.caller.by), bool)
        return Response(Done(), before={"protocol": found.row.protocol, "peer": found.row.peer, "out": found.row.out})

    # Locks

    async def locks(self, request: Request) -> Response:
        """Locks that expire first, of queues that the caller may see."""
        query: LocksQuery = request.query
        after = decode_numbers(query.cursor, 2) or (0, 0)
        found: list[tuple[Lock, tuple[int, int]]] = []
        following: tuple[int, int] | None = (after[0], after[1])
        for _ in range(MOST_PIECES):
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
        return Response(Page[Lock](items=items, next=encode_cursor(*following) if following else None))

    async def release_lock(self, request: Request) -> Response:
        """Release a locked message."""
        asked = requests.ReleaseLock(
            id=request.message_id, allowed=request.caller.patterns("operate"), by=request.caller.by
        )
        queue = await self._broker.ask(asked, str)
        return Response(Done(), target=f"{queue}/{request.path_params['id']}")

    # Readers and writers

    async def readers(self, request: Request) -> Response:
        """By name. There are at most 1,000."""
        rows = await self._broker.ask(Readers(), list[ReaderRow])
        found = sorted((row for row in rows if request.query.contains in row.reader), key=lambda row: row.reader)
        shown, following = slice_page(found, request.query, lambda row: (row.reader,), tuple[str])
        items = [resource_of(Reader, row, name=row.reader, heard_at=to_datetime(row.at)) for row in shown]
        return Response(Page[Reader](items=items, next=following, total=len(found)))

    async def forget_reader(self, request: Request) -> Response:
        """Forget a reader, with its pin and leases."""
        asked = DropReader(name=request.path_params["name"], by=request.caller.by, over="http")
        if not await self._broker.ask(asked, bool):
            fail("not-found", f"there is no reader {request.path_params['name']!r}", field="path.name")
        return Response(Done())

    async def leases(self, request: Request) -> Response:
        """By position."""
        after = decode_numbers(request.query.cursor, 1)
        asked = requests.Leases(after=after[0] if after else 0, limit=request.query.limit + 1)
        rows = await self._broker.ask(asked, list[requests.LeaseRow])
        items = [resource_of(Lease, row, since=to_datetime(row.since), until=to_datetime(row.until)) for row in rows]
        return Response(page(items, request.query.limit, lambda each: encode_cursor(each.position), Page[Lease]))

    async def writers(self, request: Request) -> Response:
        """By name."""
        after: tuple[str] | None = decode_cursor(request.query.cursor, tuple[str])
        asked = Writers(after=after[0] if after else "", contains=request.query.contains, limit=request.query.limit + 1)
        rows = await self._broker.ask(asked, list[WriterRow])
        items = [resource_of(Writer, row, name=row.writer, written_at=to_datetime_or_none(row.at)) for row in rows]
        return Response(page(items, request.query.limit, lambda each: encode_cursor(each.name), Page[Writer]))

    async def forget_writer(self, request: Request) -> Response:
        """Forget a writer. Its chunks would be accepted again."""
        asked = DropWriter(name=request.path_params["name"], by=request.caller.by, over="http")
        if not await self._broker.ask(asked, bool):
            fail("not-found", f"there is no writer {request.path_params['name']!r}", field="path.name")
        return Response(Done())


def _number(request: Request) -> int:
    text = request.path_params["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        fail("bad-request", f"a connection ID is a number, not {text[:64]!r}", field="path.id")
    return int(text)


def _matches(row: ConnectionRow, query: ConnectionsQuery) -> bool:
    return (
        (not query.protocol or row.protocol == query.protocol)
        and (not query.contains or any(query.contains in text for text in (row.peer, row.subject, row.user)))
        and (not query.throttled or bool(row.throttled))
    )


def _lock(row: requests.LockRow, now: int) -> Lock:
    return resource_of(
        Lock,
        row,
        message=row.id.hex(),
        queue=f"{row.namespace}/{row.name}",
        peer=row.peer.partition(" ")[2],
        since=to_datetime(row.since),
        until=to_datetime(row.until),
        seconds_left=max(0.0, round((row.until - now) / 1e6, 3)),
    )
