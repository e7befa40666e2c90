"""The ASGI application alone: requests while memory is short or the audit log is broken."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import pytest

from penstock.admin import app as module
from penstock.admin.app import App
from penstock.admin.audit import Audit
from penstock.admin.gatekeeper import Gatekeeper
from penstock.admin.http import Request, Response
from penstock.admin.origins import Origins
from penstock.admin.store import StateFile
from penstock.companions.rights import Allowed, AskRights


async def _allow_everything(request: AskRights) -> Allowed:
    return Allowed(open=True, identity="somebody")


class Rig:
    """An application with one handler, which waits for an event."""

    def __init__(self, store: StateFile) -> None:
        self.faults: list[BaseException] = []
        self.go_on = asyncio.Event()
        gatekeeper = Gatekeeper(_allow_everything, store)
        self.app = App(
            {"publish": self._publish},
            gatekeeper,
            Audit(store),
            self.faults.append,
            Origins("127.0.0.1:0", tls=False),
            largest_publish=10_000,
        )

    async def _publish(self, request: Request) -> Response:
        await self.go_on.wait()
        return Response({"ids": []})

    async def ask(self, size: int) -> tuple[int, Any]:
        """Publish a payload of ``size`` bytes. Returns status and body."""
        sent: list[dict[str, Any]] = []
        body = json.dumps({"messages": [{"payload": "x" * size}]}).encode()
        scope = {
            "type": "http", "method": "POST", "path": "/api/v1/queues/default/jobs/messages", "scheme": "http",
            "headers": [(b"authorization", b"Bearer x"), (b"content-type", b"application/json")], "query_string": b"",
            "client": ("127.0.0.1", 1),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_BYTES", 0)


def test_bodies_of_all_clients_are_bounded_together() -> None:
    async def story() -> None:
        store = StateFile("")
        rig = Rig(store)
        first = [asyncio.create_task(rig.ask(9_000)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        status, body = await rig.ask(9_000)
        assert (status, body["code"]) == (429, "too-many")
        rig.go_on.set()
        assert [status for status, _ in await asyncio.gather(*first)] == [201, 201]
        assert (await rig.ask(9_000))[0] == 201
        store.close()

    asyncio.run(story())


def test_a_completed_request_succeeds_even_if_the_audit_log_cannot_be_written() -> None:
    async def story() -> None:
        store = StateFile("")
        rig = Rig(store)
        rig.go_on.set()
        store.write("drop table audit")
        assert (await rig.ask(10))[0] == 201
        assert [type(fault) for fault in rig.faults] == [sqlite3.OperationalError]
        store.close()

    asyncio.run(story())
