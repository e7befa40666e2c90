"""The HTTP process's client of the broker: it gives up on a silent broker, and raises problems of the API."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TypeVar, cast

from penstock.admin.problems import STATUS, ApiProblem, problem
from penstock.admin.pulse import GIVE_UP_SECONDS, Pulse
from penstock.admin.resources.common import Code
from penstock.companions.broker_client import AsyncBrokerClient, BrokerAway
from penstock.companions.framing import BrokerRefused, Change, Refusal, Request

T = TypeVar("T")


class WatchedBroker:
    """``pulse`` knows whether the broker is silent. The requests by which it learns that pass None."""

    def __init__(self, path: str, pulse: Pulse | None = None) -> None:
        self._client = AsyncBrokerClient(path)
        self._pulse = pulse

    async def ask(self, request: Request, kind: type[T]) -> T:
        """Send a request and decode the answer as ``kind``. Raises ApiProblem.

        A change does not time out while the broker is silent, since it may still be applied.
        """
        pulse = self._pulse
        try:
            async with (
                nullcontext() if pulse is None or isinstance(request, Change) else pulse.patience(GIVE_UP_SECONDS)
            ):
                answer = await self._client.ask(request, kind)
        except BrokerRefused as error:
            if pulse is not None:
                pulse.heard()
            raise _as_problem(error.refusal) from None
        except BrokerAway as error:
            raise problem("away", str(error)) from None
        if pulse is not None:
            pulse.heard()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()


def _as_problem(refusal: Refusal) -> ApiProblem:
    code = cast("Code", refusal.code) if refusal.code in STATUS else "internal"
    return problem(code, refusal.text, field=refusal.field)
