"""A broker that hangs: observers notice within seconds, and stale figures are not shown as current."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from penstock.admin.admin_requests import BrokerFigures
from penstock.admin.problems import ApiProblem, problem
from penstock.admin.pulse import SILENT_SECONDS, TICK, Pulse
from support.web import Api, WebBroker, eventually


@contextmanager
def stopped(broker: WebBroker) -> Iterator[None]:
    """Stop the broker's process, and continue it at the end."""
    broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.signal(signal.SIGCONT)


def metrics(api: Api) -> dict[str, str]:
    lines = api.ask("GET", "/metrics").body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_broker_that_hangs_is_not_ready(tmp_path: Path) -> None:
    """It is noticed within seconds; no request waits for the broker's own timeout of a minute."""
    with WebBroker(tmp_path) as broker:
        api = broker.api
        api.do("PUT", "queues/default/q", {})
        before = api.get("overview")
        assert before["ready"]
        assert metrics(api)["penstock_broker_silence_seconds"] == "0"
        with stopped(broker):
            readiness = api.ask("GET", "/readyz")
            assert (readiness.status, readiness.value["ok"]) == (503, False)
            assert "the broker has not answered for" in readiness.value["reasons"][0]
            assert Api(api.address).ask("GET", "/healthz").status == 200
            overview = api.get("overview")
            assert (overview["ready"], overview["totals"]) == (False, before["totals"])
            assert "the broker has not answered for" in overview["reasons"][0]
            assert overview["alarms"][0]["code"] == "not-ready"
            assert overview["silent_seconds"] >= SILENT_SECONDS
            found = metrics(api)
            assert found["penstock_ready"] == "0"
            assert float(found["penstock_broker_silence_seconds"]) >= SILENT_SECONDS
            assert api.refused("GET", "queues/default/q")["code"] == "away"
            assert Api(api.address, "unheard-of").refused("GET", "overview")["code"] == "away"
        eventually(lambda: api.ask("GET", "/readyz").status == 200)
        now = api.get("overview")
        assert (now["ready"], now["silent_seconds"]) == (True, 0.0)


class Broker:
    """A broker that answers, refuses, or is silent."""

    def __init__(self) -> None:
        self.silent = asyncio.Event()
        self.refuses = False

    async def ask(self) -> BrokerFigures:
        if self.refuses:
            raise problem("standby", "another one serves")
        if self.silent.is_set():
            await asyncio.Event().wait()
        return cast(BrokerFigures, None)


def test_silence_ends_waiting_requests_and_rejects_new_ones() -> None:
    async def story() -> None:
        broker = Broker()
        pulse = Pulse(broker.ask)
        running = asyncio.create_task(pulse.run())
        await pulse.figures()
        broker.silent.set()
        with pytest.raises(ApiProblem, match="has not answered for 2 seconds"):
            async with pulse.patience():
                await asyncio.Event().wait()
        with pytest.raises(ApiProblem):
            await pulse.figures()
        with pytest.raises(TimeoutError):  # an unrelated timeout passes through unchanged
            async with pulse.patience(1e9), asyncio.timeout(0):
                await asyncio.Event().wait()
        pulse.heard()
        pulse.check()
        running.cancel()

    asyncio.run(story())


def test_a_refusal_is_a_sign_of_life() -> None:
    async def story() -> None:
        broker = Broker()
        pulse = Pulse(broker.ask)
        broker.refuses, pulse.silence = True, SILENT_SECONDS - TICK
        with pytest.raises(ApiProblem, match="another one"):
            await pulse.figures()
        assert pulse.silence == 0

    asyncio.run(story())


def test_a_stalled_machine_does_not_make_the_broker_look_silent() -> None:
    """A tick counts once, however late it comes."""

    async def story() -> None:
        broker = Broker()
        pulse = Pulse(broker.ask)
        running = asyncio.create_task(pulse.run())
        await pulse.figures()
        broker.silent.set()
        time.sleep(SILENT_SECONDS + TICK)  # the loop gets no turn
        await asyncio.sleep(0)
        pulse.check()
        running.cancel()

    asyncio.run(story())
