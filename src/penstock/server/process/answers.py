"""Who answers on the private socket: the broker that serves, or, while another one does, nobody but for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from penstock.admin import admin_requests
from penstock.core.queue import Miscounted
from penstock.flight.calls import Problem
from penstock.journal.errors import Fenced, LogFailed
from penstock.server.admin.broker_requests import AdminRequests
from penstock.server.flight.requests import RequestHandler
from penstock.server.network.runtime import Runtime

#: What is for the HTTP process.
_ADMIN = get_args(admin_requests.Request)


class ServingAnswers:
    """Of a broker that serves. ``admin`` answers the HTTP process; None where there is none."""

    def __init__(self, runtime: Runtime, admin: AdminRequests | None = None) -> None:
        self._runtime = runtime
        self._requests = RequestHandler(runtime)
        self._admin = admin

    async def answer(self, request: Any) -> object:
        """See Answers."""
        is_admin = isinstance(request, _ADMIN)
        if is_admin and self._admin is None:
            return Problem(code="bad-request", text="this broker has no HTTP")
        try:
            return await (self._admin.answer(request) if self._admin and is_admin else self._requests.answer(request))
        except (Fenced, LogFailed):
            text = "another broker has taken over before this was done: ask that one whether it was"
            return admin_requests.Refusal(code="standby", text=text) if is_admin else Problem(code="away", text=text)

    def failed(self, error: Exception) -> None:
        """See Answers. Wrong counters are the end of everything."""
        if isinstance(error, Miscounted):
            self._runtime.fail(error)


class StandbyAnswers:
    """Of a broker that stands by: it knows who serves, and nothing else. ``why`` tells that in words."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    async def answer(self, request: Any) -> object:
        """See Answers."""
        return admin_requests.Refusal(code="standby", text=self._why())

    def failed(self, error: Exception) -> None:
        """See Answers. There is nothing that could be wrong."""
