"""Find the host that serves. A standby refuses connections; a machine that is gone does not answer.

Hosts are tried a moment apart and the first that serves wins: a silent host costs that moment, not the whole timeout.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from penstock.client.errors import ClientError, ConnectFailed, Disconnected, ProtocolProblem, Refused, TimedOut
from penstock.client.session import ClientSession
from penstock.client.urls import Address

#: Seconds after which the next host is tried as well, while the others have not answered.
STAGGER = 0.25


async def first_serving(
    addresses: Sequence[Address], connect: Callable[[Address], Awaitable[ClientSession]]
) -> ClientSession:
    """A session with the first host that serves. Raises :class:`ConnectFailed` with the reason of each host."""
    if len(addresses) == 1:
        return await connect(addresses[0])
    left = deque(addresses)
    tasks: set[asyncio.Future[ClientSession]] = set()
    failed: list[ConnectFailed] = []
    try:
        while left or tasks:
            if left:
                tasks.add(asyncio.ensure_future(_serving(left.popleft(), connect)))
            done, _ = await asyncio.wait(tasks, timeout=STAGGER if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                tasks.discard(task)
                try:
                    return task.result()
                except ConnectFailed as error:
                    failed.append(error)
    finally:
        await _give_up(tasks)
    raise none_serves(failed)


async def _serving(address: Address, connect: Callable[[Address], Awaitable[ClientSession]]) -> ClientSession:
    """A session with this host, once it has answered a ping if the protocol has one.

    A connection alone proves nothing: the kernel accepts it for a process that is stopped or stuck.
    """
    session = await connect(address)
    try:
        if session.can("ping"):
            async with asyncio.timeout(session.options.connect_timeout):
                await session.ping()
    except Refused:
        pass  # also an answer: the host serves
    except TimeoutError:
        session.link.fail(Disconnected(f"{address}: no answer to a ping"))
        raise ConnectFailed(f"{address}: no answer within {session.options.connect_timeout:g} s") from None
    except (Disconnected, TimedOut, ProtocolProblem) as error:
        failure = ConnectFailed(str(error))
        failure.retriable = error.retriable
        raise failure from error
    except BaseException:
        session.link.fail(Disconnected(f"{address}: connecting was cancelled"))
        raise
    return session


async def _give_up(tasks: set[asyncio.Future[ClientSession]]) -> None:
    """Cancel the other attempts and close those that connected in the same moment."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, ClientSession):
            outcome.link.fail(Disconnected(f"{outcome.address}: another host answered first"))


def none_serves(failed: Sequence[ClientError]) -> ClientError:
    """The errors of all hosts as one."""
    if len(failed) == 1:
        return failed[0]
    error = ConnectFailed(f"none of {len(failed)} hosts serves: {'; '.join(map(str, failed))}")
    error.retriable = any(each.retriable for each in failed)
    return error
