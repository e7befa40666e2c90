"""Messages: browsing, search, one message, its life, publishing; and dead letters by reason."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrowsedMessage, MessageInState
from penstock.admin.http import Answer, Request
from penstock.admin.journal import JournalView, LifeEvent
from penstock.admin.mirror import Mirror
from penstock.admin.pages import cursor_of, numbers_of, page, values_of
from penstock.admin.payloads import data_of, shown
from penstock.admin.problems import fail
from penstock.admin.resources.common import Done, Page, State
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
from penstock.admin.search import SearchTerms, searched
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.policy import SECOND
from penstock.journal.format.rows import MessageRow
from penstock.patterns import fits_queue
from penstock.schema import FOREVER, Reason

_REASONS = {int(reason): reason.name.lower() for reason in Reason}


class MessageHandlers:
    """Handles what is about messages."""

    def __init__(self, broker: WatchedBroker, mirror: Mirror, journal: JournalView) -> None:
        self._broker = broker
        self._mirror = mirror
        self._journal = journal
        self.handlers = {
            "messages": self.browse,
            "message": self.message,
            "payload": self.payload,
            "publish": self.publish,
            "delete-message": self.delete,
            "life": self.life,
            "dead": self.dead,
        }

    # Browsing and search

    @property
    def _identity(self) -> bytes:
        return self._mirror.identity

    async def browse(self, request: Request) -> Answer:
        """Messages of one state, or those of them that a search finds."""
        query: MessagesQuery = request.query
        await self._mirror.known()
        wanted = SearchTerms.of(query)
        after = values_of(query.cursor, tuple[str, tuple[int, int, int]])
        if after is not None and after[0] != query.state:
            fail("bad-request", f"this cursor is of messages that are {after[0]}", field="query.cursor")
        asked = requests.Browse(
            namespace=request.namespace, name=request.queue, state=query.state, after=after[1] if after else ()
        )
        found = await searched(self._broker, self._journal, asked, wanted, query.limit, self._identity)
        items = [
            self._summary(item, found.messages.get(item.place), query.state, query.bytes, query.encoding)
            for item in found.items
        ]
        following = cursor_of(query.state, found.after) if found.after else None
        return Answer(
            MessagePage(
                items=items,
                next=following,
                looked_at=found.looked_at,
                searched_bytes=found.searched_bytes,
                total=found.total,
            )
        )

    # One message

    async def message(self, request: Request) -> Answer:
        """One, with its payload."""
        await self._mirror.known()
        found, message = await self._found(request)
        item = found.item
        summary = self._summary(item, message, found.state, request.query.bytes, request.query.encoding)
        holder = None
        if found.state == "out":
            holder = Holder(
                connection=item.connection if item.connection >= 0 else None,
                reader=item.holder.partition(" ")[2] if item.connection < 0 else "",
                peer=item.holder,
                since=moment(item.since),
                until=moment_or_none(item.until),
            )
        fields = {name: getattr(summary, name) for name in summary.__struct_fields__}
        return Answer(MessageDetail(**fields, queue=request.full_name, holder=holder))

    async def payload(self, request: Request) -> Answer:
        """The whole of it."""
        _, message = await self._found(request)
        if message is None:
            fail("refused", "the payload can not be read")
        name = f'attachment; filename="{request.places["id"].lower()}.bin"'
        headers = (("content-disposition", name),)
        return Answer(body=message.payload, media="application/octet-stream", headers=headers)

    async def _found(self, request: Request) -> tuple[MessageInState, MessageRow | None]:
        asked = requests.Find(namespace=request.namespace, name=request.queue, id=request.message_id)
        found = await self._broker.ask(asked, MessageInState | None)  # type: ignore[arg-type]  # a union is a type for msgspec
        if found is None:
            fail("not-found", f"the queue {request.full_name} has no such message now", field="path.id")
        messages = await self._journal.messages([found.item.place])
        return found, messages.get(found.item.place)

    async def delete(self, request: Request) -> Answer:
        """Remove one."""
        asked = requests.DeleteMessage(
            namespace=request.namespace, name=request.queue, id=request.message_id, by=request.caller.by
        )
        await self._broker.ask(asked, bool)
        return Answer(Done())

    async def publish(self, request: Request) -> Answer:
        """All of them, or none."""
        body: Publish = request.body
        told: list[tuple[bytes, int, int, int, bytes]] = []
        for number, each in enumerate(body.messages):
            data = data_of(each.payload, each.encoding, f"body.messages[{number}].payload")
            ttl = -1 if each.ttl_seconds is None else int(each.ttl_seconds * SECOND)
            correlation_id = each.correlation_id.encode()
            if len(correlation_id) > 255:
                field = f"body.messages[{number}].correlation_id"
                fail("bad-request", "a correlation ID has 255 bytes at most", field=field)
            told.append((data, each.priority, ttl, int(each.delay_seconds * SECOND), correlation_id))
        asked = requests.Publish(namespace=request.namespace, name=request.queue, messages=told, by=request.caller.by)
        ids = await self._broker.ask(asked, list[bytes])
        return Answer(Published(ids=[each.hex() for each in ids]), after={"messages": len(ids)})

    # A message's life

    async def life(self, request: Request) -> Answer:
        """Every event that the journal still has."""
        await self._mirror.known()
        raw = request.message_id
        position = await self._broker.ask(requests.PositionOf(id=raw), int)
        if not position:
            position = int.from_bytes(raw[8:], "big") if raw[:8] == self._identity else 0
        start = numbers_of(request.query.cursor, 1)
        if not position:
            fail("not-found", "no message of this journal has this ID", field="path.id")
        events, following, since = await self._journal.life(position, start[0] if start else 0)
        mine = [event for event in events if self._is_here(event, request)]
        asked = requests.Find(namespace=request.namespace, name=request.queue, id=raw)
        found = await self._broker.ask(asked, MessageInState | None)  # type: ignore[arg-type]
        if not mine and found is None and not following:
            fail("not-found", f"the journal tells nothing of such a message of {request.full_name}", field="path.id")
        return Answer(
            Life(
                id=raw.hex(),
                position=position,
                state=found.state if found is not None else None,
                queue=request.full_name,
                events=[self._event(each) for each in mine],
                next=cursor_of(following) if following else None,
                since=moment_or_none(since),
            )
        )

    def _is_here(self, event: LifeEvent, request: Request) -> bool:
        """Events in queues that the caller may not see are not told."""
        row = self._mirror.rows.get(event.queue)
        if row is None:  # it was deleted
            return request.caller.may_everywhere("view")
        return request.caller.may("view", row.namespace, row.name)

    def _event(self, event: LifeEvent) -> Event:
        row = self._mirror.rows.get(event.queue)
        return Event(
            position=event.position,
            at=moment(event.at),
            kind=event.kind,
            queue=f"{row.namespace}/{row.name}" if row is not None else "",
            source=event.source,
            reason=event.reason,
            deliveries=event.deliveries,
            delivered_at=moment_or_none(event.delivered_at),
        )

    # Dead letters

    async def dead(self, request: Request) -> Answer:
        """By queue and reason, for the queues that the caller may see."""
        query: DeadQuery = request.query
        await self._mirror.fresh()
        after: tuple[str, str] | None = values_of(query.cursor, tuple[str, str])
        rows = await self._mirror.chosen(
            lambda row: (
                bool(row.reasons)
                and fits_queue(query.pattern, row.namespace, row.name)
                and request.caller.may("view", row.namespace, row.name)
            )
        )
        groups = sorted(
            (f"{row.namespace}/{row.name}", reason, count, row.oldest_dead)
            for row in rows
            for reason, count in row.reasons.items()
        )
        rest = [each for each in groups if after is None or (each[0], each[1]) > after]
        shown = rest[: query.limit + 1]
        times = await self._journal.times([place for _, _, _, place in shown])
        items = [
            DeadGroup(queue=name, reason=why, count=count, oldest=moment_or_none(times.get(place, 0)))
            for name, why, count, place in shown
        ]
        cursor = lambda each: cursor_of(each.queue, each.reason)  # noqa: E731
        return Answer(page(items, query.limit, cursor, Page[DeadGroup], len(groups)))

    # What is told of a message

    def _summary(
        self, item: BrowsedMessage, message: MessageRow | None, state: State, most: int, encoding: Encoding | None
    ) -> MessageSummary:
        raw = item.asked or self._identity + item.position.to_bytes(8, "big")
        reading: dict[str, Any] = {"source": "", "correlation_id": "", "request_id": "", "source_info": ""}
        payload = Payload(size=item.size, encoding="hex", value=msgspec.Raw(b'""'), truncated=item.size > 0)
        published = 0
        if message is not None:
            published = message.published_at or message.at
            source = message.carried_source or message.source
            texts = (source, message.correlation_id, message.request_id, message.source_info)
            reading = dict(zip(reading, (_text(each) for each in texts), strict=True))
            payload = shown(message.payload, most, encoding)
        return MessageSummary(
            id=raw.hex(),
            position=item.position,
            state=state,
            priority=item.priority,
            published_at=moment(published),
            expires_at=moment_or_none(item.expires if state != "delayed" else 0),
            due_at=moment(item.rank) if state == "delayed" else None,
            deliveries=item.deliveries,
            retries_left=None if item.retries == FOREVER else item.retries,
            reason=_REASONS.get(item.reason) if item.reason else None,
            payload=payload,
            **reading,
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
