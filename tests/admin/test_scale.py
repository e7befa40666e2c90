"""10,000 queues and a million messages: pages, passes and searches touch a bounded number. Counted, not timed."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from penstock.admin import admin_requests as requests
from penstock.admin.journal_view import JournalView
from penstock.admin.mirror import Mirror
from penstock.admin.search import EXAMINED, SearchTerms, search_messages
from penstock.admin.watched_broker import WatchedBroker
from penstock.core.broker import Broker
from penstock.journal.format.rows import MessageRow
from penstock.server.admin.message_requests import MessageRequests
from penstock.server.admin.queue_requests import QueueRequests
from support.effort import effort
from support.looking import NOW, runtime_of

QUEUES, MESSAGES = 10_000, 1_000_000


@pytest.fixture(scope="module")
def many_queues() -> QueueRequests:
    broker = Broker()
    broker.create_namespace("default", NOW)
    for number in range(QUEUES):
        broker.create_queue("default", f"q{number}", NOW)
        broker.log.take()
    return QueueRequests(runtime_of(broker))


@pytest.fixture(scope="module")
def many_messages() -> MessageRequests:
    broker = Broker()
    broker.create_namespace("default", NOW)
    queue = broker.create_queue("default", "q", NOW)
    positions = np.arange(2, MESSAGES + 2, dtype=np.uint64)
    nothing = np.zeros(MESSAGES, np.int64)
    queue.ready.fill(
        0, [positions, positions, np.full(MESSAGES, 10), nothing, np.full(MESSAGES, 255), nothing, nothing]
    )
    runtime = runtime_of(broker)
    return MessageRequests(runtime, QueueRequests(runtime))


def test_a_pass_over_all_queues_proceeds_in_small_steps(many_queues: QueueRequests) -> None:
    found = many_queues.rows(requests.Queues())
    assert (len(found.rows), found.more) == (requests.PIECE, True)
    seen = most = 0
    last: requests.QueueRow | None = None
    while last is None or found.more:
        request = requests.Queues(after=last.number if last else 0)
        most = max(most, effort(partial(many_queues.rows, request)))
        found = many_queues.rows(request)
        last, seen = found.rows[-1], seen + len(found.rows)
    assert seen == QUEUES
    few = QueueRequests(runtime_of(_with_queues(requests.PIECE)))
    assert most <= 1.2 * effort(lambda: few.rows(requests.Queues())) + 1_000


def _with_queues(count: int) -> Broker:
    broker = Broker()
    broker.create_namespace("default", NOW)
    for number in range(count):
        broker.create_queue("default", f"q{number}", NOW)
    return broker


class Counting(WatchedBroker):
    """Stands in for the private socket: answers at once, and counts requests."""

    def __init__(self, queues: QueueRequests | None = None, messages: MessageRequests | None = None) -> None:
        super().__init__("")
        self.queues, self.messages = queues, messages
        self.requests: list[Any] = []
        self.items = 0

    async def ask(self, request: Any, kind: Any) -> Any:
        self.requests.append(request)
        if isinstance(request, requests.Queues):
            assert self.queues is not None
            return self.queues.rows(request)
        if isinstance(request, requests.Browse):
            assert self.messages is not None
            found = self.messages.browse(request)
            self.items += len(found.items)
            return found
        return SimpleNamespace(now=NOW, identity=bytes(8))


def test_pages_of_queues_are_answered_without_the_broker(many_queues: QueueRequests) -> None:
    async def look() -> None:
        broker = Counting(queues=many_queues)
        mirror = Mirror(broker, clock=lambda: 100.0)
        await mirror.ensure_fresh()
        assert sum(isinstance(each, requests.Queues) for each in broker.requests) == QUEUES // requests.PIECE
        assert len(mirror.rows) == QUEUES
        before = len(broker.requests)
        for _ in range(100):
            await mirror.ensure_fresh()
        assert len(broker.requests) == before

    asyncio.run(look())


def test_a_page_of_messages_touches_a_page(many_messages: MessageRequests) -> None:
    pages = [(), (0, 500_000, 500_000), (0, 999_000, 999_000)]
    efforts = []
    for after in pages:
        request = requests.Browse(namespace="default", name="q", state="ready", after=after, limit=100)
        found = many_messages.browse(request)
        assert len(found.items) == 100
        assert found.total == MESSAGES
        efforts.append(effort(partial(many_messages.browse, request)))
    assert max(efforts) <= 1.2 * min(efforts) + 1_000
    assert max(efforts) < 20_000


class Stored(JournalView):
    """A journal in which one message in a hundred thousand matches."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self.read = 0

    async def messages(self, places: Any) -> dict[int, MessageRow]:
        self.read += len(places)
        empty = dict.fromkeys(MessageRow._fields, 0) | {"source": b"", "payload": b"hay", "correlation_id": b""}
        plain = MessageRow(**cast(Any, empty))
        return {place: plain._replace(payload=b"needle" if place % 100_000 == 0 else b"hay") for place in places}


def test_a_search_scans_a_bounded_number_and_resumes(many_messages: MessageRequests) -> None:
    async def search() -> None:
        broker, journal = Counting(messages=many_messages), Stored()
        request = requests.Browse(namespace="default", name="q", state="ready")
        found = await search_messages(broker, journal, request, SearchTerms(payload=b"needle"), 10, bytes(8))
        assert found.items == []
        assert EXAMINED <= found.examined == journal.read <= EXAMINED + requests.PIECE
        after, needles = found.after, 0
        for _ in range(5):
            request = requests.Browse(namespace="default", name="q", state="ready", after=after)
            found = await search_messages(broker, journal, request, SearchTerms(payload=b"needle"), 10, bytes(8))
            assert EXAMINED <= found.examined <= EXAMINED + requests.PIECE
            after, needles = found.after, needles + len(found.items)
        assert needles == 1
        assert journal.read == broker.items

    asyncio.run(search())
