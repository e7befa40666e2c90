"""No request may keep the HTTP process's event loop busy for long."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from typing import Any, get_type_hints

import pytest

from penstock.admin import admin_requests as requests
from penstock.admin.service import AdminService
from penstock.admin.settings import AdminSettings
from penstock.companions.rights import Allowed, AskRights
from penstock.companions.startup import Reporter
from penstock.core.broker import Broker
from penstock.server.admin.queue_requests import QueueRequests
from support.effort import TurnMeter
from support.looking import NOW, runtime_of

#: Queues with long names that nearly match the caller's patterns: one pass over them takes seconds if it never yields.
QUEUES, PATTERNS = 5_000, 20
NAME = "a" * 240
#: Seconds of CPU that one callback may take. It takes a tenth of that, and more on a busy machine.
TURN = 0.5


class StandInBroker:
    """Stands in for the broker: many queues, and a caller with many patterns."""

    def __init__(self) -> None:
        broker = Broker()
        broker.create_namespace("shop", NOW)
        for number in range(QUEUES):
            broker.create_queue("shop", f"{NAME}{number}", NOW)
            broker.log.take()
        self.queues = QueueRequests(runtime_of(broker))
        self.patterns = ["shop/" + "*a" * 100 + f"b{number}" for number in range(PATTERNS - 1)] + ["shop/*7"]

    async def ask(self, request: Any, kind: Any) -> Any:
        if isinstance(request, AskRights):
            return Allowed(open=False, rules=[(["view"], self.patterns)], identity="somebody")
        if isinstance(request, requests.Queues):
            return self.queues.rows(request)
        if isinstance(request, requests.Namespaces):
            return ["shop"]
        return requests.BrokerFigures(**_figures())


def _figures() -> dict[str, Any]:
    histogram = requests.Histogram(bounds=[1.0], counts=[0, 0], sum=0.0)
    empty: dict[Any, Any] = {int: 0, str: "", bool: False, bytes: bytes(8), requests.Histogram: histogram}
    hints = get_type_hints(requests.BrokerFigures)
    return {name: empty.get(kind, {}) for name, kind in hints.items()}


@pytest.fixture(scope="module")
def stand_in() -> StandInBroker:
    return StandInBroker()


def service_of(stand_in: StandInBroker, monkeypatch: pytest.MonkeyPatch) -> AdminService:
    """The HTTP service on top of that broker."""
    service = AdminService(AdminSettings(version="0", code="", data="", address="127.0.0.1:0"), Reporter(BytesIO(), ""))
    for client in (service.broker, service._listening):
        monkeypatch.setattr(client, "ask", stand_in.ask)

    async def times(places: list[int]) -> dict[int, int]:
        return {}

    monkeypatch.setattr(service.journal, "times", times)
    return service


async def ask(service: AdminService, path: str) -> tuple[int, Any]:
    """Send a GET. Returns status and JSON."""
    sent: list[dict[str, Any]] = []
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": path, "scheme": "http", "query_string": query.encode(),
        "headers": [(b"authorization", b"Bearer x"), (b"host", b"localhost")], "client": ("127.0.0.1", 1),
    }  # fmt: skip

    parts: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await service.app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


PATHS = {
    "overview": "overview",
    "queues": "queues",
    "queues by a pattern": "queues?pattern=shop/" + "*a" * 100 + "*",
    "queues by state": "queues?sort=ready&order=descending&limit=1000&contains=7",
    "namespaces": "namespaces",
    "dead": "dead?pattern=shop/" + "*a" * 100 + "b",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_no_request_blocks_the_loop_for_long(
    stand_in: StandInBroker, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        service = service_of(stand_in, monkeypatch)
        try:
            await service.mirror.refresh()
            meter = TurnMeter()
            with meter.on():
                status, body = await ask(service, f"/api/v1/{path}")
            assert status == 200, body
            assert meter.most < TURN, meter.what
        finally:
            service.stop()
            service.store.close()

    asyncio.run(story())


def test_a_pass_over_all_queues_yields_to_the_loop(stand_in: StandInBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        service = service_of(stand_in, monkeypatch)
        try:
            meter = TurnMeter()
            with meter.on():
                for _ in range(3):
                    await service.mirror.refresh()
            assert len(service.mirror.rows) == QUEUES
            assert meter.most < TURN, meter.what
        finally:
            service.stop()
            service.store.close()

    asyncio.run(story())
