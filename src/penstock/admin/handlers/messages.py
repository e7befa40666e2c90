"""Messages: browsing, search, details, events, publishing; and dead letters by reason."""

from __future__ import annotations

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrowsedMessage, MessageInState
from penstock.admin.http import Request, Response
from penstock.admin.journal_view import JournalView, LifeEvent
from penstock.admin.mirror import Mirror
from penstock.admin.pages import decode_cursor, decode_numbers, encode_cursor, slice_page
from penstock.admin.payloads import parse_payload, render
from penstock.admin.problems import fail
from penstock.admin.resources.common import Done, Page, State, resource_of
from penstock.admin.resources.messages import (
    DeadGroup,
    DeadQuery,
    Encoding,
    Event,
    Holder,
    Life,
    MessageDetail,
    MessagePage,
    MessagesQuery,
    MessageSummary,
    Payload,
    Publish,
    Published,
)
from penstock.admin.search import SearchTerms, search_messages
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import SECOND
from penstock.journal.format.rows import MessageRow
from penstock.patterns import fits_queue
from penstock.schema import FOREVER, Reason

_REASONS = {int(reason): reason.name.lower() for reason in Reason}


class MessageHandlers:
    """Handles requests about messages."""

    def __init__(self, broker: WatchedBroker, mirror: Mirror, journal: JournalView) -> None:
        self._broker = broker
        self._mirror = mirror
        self._journal = journal

    # Browsing and search

    @property
    def _identity(self) -> bytes:
        return self._mirror.identity

    async def messages(self, request: Request) -> Response:
        """Messages in one state, optionally those that match a search."""
        query: MessagesQuery = request.query
        await self._mirror.ensure_loaded()
        terms = SearchTerms.parse(query)
        after = decode_cursor(query.cursor, tuple[str, tuple[int, int, int]])
        if after is not None and after[0] != query.state:
            fail("bad-request", f"this cursor belongs to messages in the state {after[0]}", field="query.cursor")
        asked = requests.Browse(
            namespace=request.namespace, name=request.queue, state=query.state, after=after[1] if after else ()
        )
        found = await search_messages(self._broker, self._journal, asked, terms, query.limit, self._identity)
        items = [
            self._summary(item, found.messages.get(item.place), query.state, query.bytes, query.encoding)
            for item in found.items
        ]
        following = encode_cursor(query.state, found.after) if found.after else None
        return Response(
            MessagePage(
                items=items,
                next=following,
                looked_at=found.examined,
                searched_bytes=found.searched_bytes,
                total=found.total,
            )
        )

    # One message

    async def message(self, request: Request) -> Response:
        """One message, with its payload."""
        await self._mirror.ensure_loaded()
        found, message = await self._found(request)
        item = found.item
        summary = self._summary(item, message, found.state, request.query.bytes, request.query.encoding)
        holder = None
        if found.state == "out":
            holder = Holder(
                connection=item.connection if item.connection >= 0 else None,
                reader=item.holder.partition(" ")[2] if item.connection < 0 else "",
                peer=item.holder,
                since=to_datetime(item.since),
                until=to_datetime_or_none(item.until),
            )
        return Response(resource_of(MessageDetail, summary, queue=request.full_name, holder=holder))

    async def payload(self, request: Request) -> Response:
        """The whole payload."""
        _, message = await self._found(request)
        if message is None:
            fail("refused", "the payload can't be read: it is damaged or was removed")
        name = f'attachment; filename="{request.path_params["id"].lower()}.bin"'
        headers = (("content-disposition", name),)
        return Response(body=message.payload, media="application/octet-stream", headers=headers)

    async def _found(self, request: Request) -> tuple[MessageInState, MessageRow | None]:
        asked = requests.FindMessage(namespace=request.namespace, name=request.queue, id=request.message_id)
        found = await self._broker.ask(asked, MessageInState | None)  # type: ignore[arg-type]  # a union is a type for msgspec
        if found is None:
            fail("not-found", f"the queue {request.full_name} does not contain this message", field="path.id")
        messages = await self._journal.messages([found.item.place])
        return found, messages.get(found.item.place)

    async def delete_message(self, request: Request) -> Response:
        """Remove a message."""
        asked = requests.DeleteMessage(
            namespace=request.namespace, name=request.queue, id=request.message_id, by=request.caller.by
        )
        await self._broker.ask(asked, bool)
        return Response(Done())

    async def publish(self, request: Request) -> Response:
        """Publish all messages, or none."""
        body: Publish = request.body
        rows: list[tuple[bytes, int, int, int, bytes]] = []
        for number, each in enumerate(body.messages):
            data = parse_payload(each.payload, each.encoding, f"body.messages[{number}].payload")
            ttl = -1 if each.ttl_seconds is None else int(each.ttl_seconds * SECOND)
            correlation_id = each.correlation_id.encode()
            if len(correlation_id) > 255:
                field = f"body.messages[{number}].correlation_id"
                fail("bad-request", "a correlation ID has at most 255 bytes", field=field)
            rows.append((data, each.priority, ttl, int(each.delay_seconds * SECOND), correlation_id))
        asked = requests.Publish(namespace=request.namespace, name=request.queue, messages=rows, by=request.caller.by)
        ids = await self._broker.ask(asked, list[bytes])
        return Response(Published(ids=[each.hex() for each in ids]), after={"messages": len(ids)})

    # Events of a message

    async def life(self, request: Request) -> Response:
        """All events of a message that are still in the journal."""
        await self._mirror.ensure_loaded()
        raw = request.message_id
        position = await self._broker.ask(requests.FindPosition(id=raw), int)
        if not position:
            position = int.from_bytes(raw[8:], "big") if raw[:8] == self._identity else 0
        start = decode_numbers(request.query.cursor, 1)
        if not position:
            fail("not-found", "no message of this journal has this ID", field="path.id")
        events, following, since = await self._journal.life(position, start[0] if start else 0)
        visible = [event for event in events if self._may_see(event, request)]
        asked = requests.FindMessage(namespace=request.namespace, name=request.queue, id=raw)
        found = await self._broker.ask(asked, MessageInState | None)  # type: ignore[arg-type]
        if not visible and found is None and not following:
            fail("not-found", f"the journal has no events of this message in {request.full_name}", field="path.id")
        return Response(
            Life(
                id=raw.hex(),
                position=position,
                state=found.state if found is not None else None,
                queue=request.full_name,
                events=[self._event(each) for each in visible],
                next=encode_cursor(following) if following else None,
                since=to_datetime_or_none(since),
            )
        )

    def _may_see(self, event: LifeEvent, request: Request) -> bool:
        """Whether the caller may view the queue of an event."""
        row = self._mirror.rows.get(event.queue)
        if row is None:  # the queue was deleted
            return request.caller.may_everywhere("view")
        return request.caller.may_view(row)

    def _event(self, event: LifeEvent) -> Event:
        row = self._mirror.rows.get(event.queue)
        return resource_of(
            Event,
            event,
            at=to_datetime(event.at),
            queue=f"{row.namespace}/{row.name}" if row is not None else "",
            delivered_at=to_datetime_or_none(event.delivered_at),
        )

    # Dead letters

    async def dead(self, request: Request) -> Response:
        """By queue and reason, for the queues that the caller may see."""
        query: DeadQuery = request.query
        await self._mirror.ensure_fresh()
        rows = await self._mirror.select(
            lambda row: (
                bool(row.reasons)
                and fits_queue(query.pattern, row.namespace, row.name)
                and request.caller.may_view(row)
            )
        )
        groups = sorted(
            (f"{row.namespace}/{row.name}", reason, count, row.oldest_dead)
            for row in rows
            for reason, count in row.reasons.items()
        )
        shown, following = slice_page(groups, query, lambda each: each[:2], tuple[str, str])
        times = await self._journal.times([position for _, _, _, position in shown])
        items = [
            DeadGroup(queue=name, reason=reason, count=count, oldest=to_datetime_or_none(times.get(position, 0)))
            for name, reason, count, position in shown
        ]
        return Response(Page[DeadGroup](items=items, next=following, total=len(groups)))

    def _summary(
        self, item: BrowsedMessage, message: MessageRow | None, state: State, most: int, encoding: Encoding | None
    ) -> MessageSummary:
        raw = item.asked or self._identity + item.position.to_bytes(8, "big")
        texts = dict.fromkeys(("source", "correlation_id", "request_id", "source_info"), "")
        payload = Payload(size=item.size, encoding="hex", value=msgspec.Raw(b'""'), truncated=item.size > 0)
        published = 0
        if message is not None:
            published = message.published_at or message.at
            source = message.carried_source or message.source
            values = (source, message.correlation_id, message.request_id, message.source_info)
            texts = {name: value.decode("utf-8", "replace") for name, value in zip(texts, values, strict=True)}
            payload = render(message.payload, most, encoding)
        return MessageSummary(
            id=raw.hex(),
            position=item.position,
            state=state,
            priority=item.priority,
            published_at=to_datetime(published),
            expires_at=to_datetime_or_none(item.expires if state != "delayed" else 0),
            due_at=to_datetime(item.rank) if state == "delayed" else None,
            deliveries=item.deliveries,
            retries_left=None if item.retries == FOREVER else item.retries,
            reason=_REASONS.get(item.reason) if item.reason else None,
            payload=payload,
            **texts,
        )
