"""Acknowledging across connections, for commands that take messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.output import note
from penstock.client import Disconnected, NotHeld, TimedOut, Uncertain, aio
from penstock.client.messages import Message


async def acknowledge(client: aio.AsyncClient, messages: Sequence[Message]) -> bool:
    """Acknowledge messages. False: their connection was lost before, so they may be delivered again.

    Raises the loss if the client does not reconnect.
    """
    try:
        await client.ack_many(messages)
    except (NotHeld, Uncertain, Disconnected, TimedOut) as error:
        if client.options.returning is None:
            raise
        note(f"{len(messages)} message(s) were not acknowledged and may come again: {error}")
        return False
    return True
