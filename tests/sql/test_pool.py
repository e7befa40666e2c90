"""SQL processes that hang or die while idle are replaced."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from penstock.sql import pool as module
from penstock.sql.pool import Pool
from penstock.sql.requests import ListTables, SqlSettings


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_an_unresponsive_process_is_replaced_before_a_query(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.5)

    async def story() -> None:
        pool = Pool(SqlSettings(journal="", broker_socket=""))
        try:
            assert (await pool.ask(ListTables(), 60)).body
            [first] = pool._free
            os.kill(first._process.pid, number)
            assert (await pool.ask(ListTables(), 60)).body
            assert first not in pool._free
            assert first._process.returncode is not None
        finally:
            await pool.close()

    asyncio.run(story())
