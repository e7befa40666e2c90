"""The client and a real broker together."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import (
    Closed,
    ConnectFailed,
    Disconnected,
    Message,
    NotHeld,
    Outgoing,
    Published,
    Reconnect,
    Refused,
    aio,
    connect,
)
from support.brokers import BrokerProcess
from support.fakebroker import run

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as live:
        yield live


@pytest.fixture
def queue() -> str:
    """Return a queue name that no other test uses."""
    return f"q{next(numbers)}"


class TestPhpmq:
    def test_publish_consume_ack(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("phpmq", f"/{queue}")) as client:
            client.publish_many((b"%d" % number for number in range(1000)), ttl=60)
            seen = []
            for message in client.consume(window=100, idle=2):
                assert message.ttl is not None
                assert 55 <= message.ttl <= 60
                seen.append(int(message.body))
                message.ack()
                if len(seen) == 1000:
                    break
            assert seen == list(range(1000))
            assert client.receive(timeout=0.1) is None

    def test_requeue_and_reject(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("phpmq", f"/{queue}")) as client:
            client.publish(b"once more")
            first = client.receive(timeout=5)
            assert first is not None
            first.requeue(ttl=60)
            second = client.receive(timeout=5)
            assert second is not None
            assert (second.id, second.ttl) == (first.id, 60)
            second.reject()
            assert client.receive(timeout=0.1) is None

    @pytest.mark.parametrize("query", ["dialect=32", "dialect=36&form=lined", "form=crlf"])
    def test_dialects(self, broker: BrokerProcess, queue: str, query: str) -> None:
        with connect(broker.url("phpmq", f"/{queue}?{query}")) as client:
            client.publish(b"x")
            message = client.receive(timeout=5)
            assert message is not None
            message.ack()

    def test_closing_releases_messages(self, broker: BrokerProcess, queue: str) -> None:
        url = broker.url("phpmq", f"/{queue}")
        with connect(url) as client:
            client.publish_many([b"a", b"b", b"c"])
            assert client.receive(timeout=5) is not None
        with connect(url) as client:
            assert [m.body for m in itertools.islice(client.consume(idle=5), 3)] == [b"a", b"b", b"c"]

    def test_a_large_message(self, broker: BrokerProcess, queue: str) -> None:
        body = bytes(range(256)) * 4096
        with connect(broker.url("phpmq", f"/{queue}")) as client, connect(broker.url("kokaq", f"/{queue}")) as other:
            other.create_queue(exist_ok=True)  # the PHPMQ message is still on its way
            client.publish(body)
            message = other.receive(timeout=5)
            assert message is not None
            assert message.body == body


class TestSspq:
    @pytest.fixture(autouse=True)
    def empty(self, broker: BrokerProcess) -> None:
        with connect(broker.url("kokaq", "/default/sspq")) as client:
            while client.pop() is not None:
                pass

    def test_publish_consume_ack(self, broker: BrokerProcess) -> None:
        with connect(broker.url("sspq")) as client:
            client.publish_many((b"%d" % number for number in range(200)), retries=7)
            seen = []
            for message in client.consume(idle=2):
                assert message.retries == 7
                seen.append(int(message.body))
                message.ack()
                if len(seen) == 200:
                    break
            assert seen == list(range(200))

    def test_dead_letters(self, broker: BrokerProcess) -> None:
        with connect(broker.url("sspq")) as client:
            client.publish(b"bad", retries=0)
            assert client.receive(timeout=5) is not None
        with connect(broker.url("sspq")) as client:
            for dead in client.dead_letters(idle=5):
                assert dead.body == b"bad"
                dead.ack()
                break


class TestKokaq:
    def test_confirmed_and_in_order(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/default/{queue}")) as client:
            published = client.publish_many(b"%d" % number for number in range(3000))
            assert published.confirmed
            assert len(set(published.ids)) == published.count == 3000
            messages = client.consume(window=500, idle=2)
            seen: list[Message] = []
            while len(seen) < 3000:
                batch = list(itertools.islice(messages, 500))
                client.ack_many(batch)
                seen += batch
            assert [int(message.body) for message in seen] == list(range(3000))
            assert tuple(message.id for message in seen) == published.ids
            with pytest.raises(NotHeld, match="already acknowledged"):
                client.ack_many(seen[-2:])
            assert client.queue_info().depth == 0

    def test_priority_correlation_delay_requested_id(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            client.publish(b"low")
            client.publish(b"high", priority=9, correlation_id=b"c")
            client.publish(b"later", delay=0.5)
            assert client.publish(b"named", id="11" * 16).id == "11" * 16
            with pytest.raises(Refused) as caught:
                client.publish(b"named too", id="11" * 16)
            assert caught.value.reason == "exists"
            first = client.pop()
            assert first is not None
            assert (first.body, first.priority, first.correlation_id) == (b"high", 9, b"c")
            bodies = [message.body for message in (client.pop(), client.pop()) if message is not None]
            assert bodies == [b"low", b"named"]
            assert client.pop() is None
            late = client.receive(timeout=5)
            assert late is not None
            assert late.body == b"later"

    def test_source_info(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/default/{queue}")) as client:
            client.create_queue()
            client.publish(b"said", source_info="billing, Köln")
            client.publish(b"unsaid")
            said, unsaid = client.pop(), client.pop()
            assert said is not None
            assert said.source == "billing, Köln"
            assert unsaid is not None
            assert (unsaid.source or "").startswith("kokaq 127.0.0.1:")
            with pytest.raises(ValueError, match=r"field 0x06 .*has 300 bytes, the most is 255"):
                client.publish(b"too much", source_info="x" * 300)

    def test_create_makes_the_namespace(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/ns-{queue}/orders")) as client:
            assert client.create_queue()
            assert not client.create_queue(exist_ok=True)
            client.publish(b"m")
            assert client.create_namespace(f"ns-{queue}", exist_ok=True) is False

    def test_the_same_request_id_adds_nothing(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            first = client.publish(b"a", request_id=b"r" * 16)
            again = client.publish(b"a", request_id=b"r" * 16)
            assert first == again
            assert client.queue_info().depth == 1

    def test_lock_renew_release(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            client.publish(b"a")
            first = client.lock(lock=60)
            assert first is not None
            assert first.locked_until is not None
            assert abs(first.locked_until - time.time() - 60) < 10
            assert client.lock() is None
            first.renew(90)
            first.release()
            second = client.lock(lock=0.2)
            assert second is not None
            assert (second.id, second.deliveries) == (first.id, 1)
            time.sleep(0.6)
            for settle in (second.ack, second.renew, second.release):
                with pytest.raises(NotHeld, match="the lock expired"):
                    settle()
            third = client.lock()
            assert third is not None
            third.ack()

    def test_queues_and_namespaces(self, broker: BrokerProcess, queue: str) -> None:
        with connect(broker.url("kokaq")) as client:
            assert client.create_namespace(queue)
            assert not client.create_namespace(queue, exist_ok=True)
            name = f"{queue}/jobs"
            assert client.create_queue(name, ttl=60, lock=5, max_deliveries=3)
            assert not client.create_queue(name, exist_ok=True)
            with pytest.raises(Refused) as caught:
                client.create_queue(name)
            assert caught.value.reason == "exists"
            published = client.publish(b"x", queue=name)
            assert published.id is not None
            info = client.queue_info(name)
            assert (info.name, info.depth) == (name, 1)
            peeked, got = client.peek(name), client.get(published.id)
            assert peeked is not None
            assert got is not None
            assert (peeked.body, got.body, got.queue) == (b"x", b"x", name)
            with pytest.raises(Refused) as caught:
                client.delete_queue(name)
            assert caught.value.reason == "not_allowed"
            client.pop(name)
            assert client.get(published.id) is None
            client.delete_queue(name)
            client.delete_namespace(queue)
            with pytest.raises(Refused) as caught:
                client.queue_info(name)
            assert caught.value.reason == "bad"

    def test_the_broker_itself(self, broker: BrokerProcess) -> None:
        with connect(broker.url("kokaq")) as client:
            client.ping()
            assert client.health() is None
            assert client.counters()

    @pytest.mark.parametrize("query", ["numbering=listing", "bits=high", "numbering=listing&bits=high"])
    def test_variants(self, broker: BrokerProcess, queue: str, query: str) -> None:
        with connect(broker.url("kokaq", f"/{queue}?{query}")) as client:
            client.publish(b"x")
            message = client.receive(timeout=5)
            assert message is not None
            message.ack()


def test_from_each_protocol_to_each_other(broker: BrokerProcess) -> None:
    paths = {"phpmq": "/sspq", "sspq": "", "kokaq": "/default/sspq"}
    for source, target in itertools.product(paths, paths):
        with connect(broker.url(source, paths[source])) as sender, connect(broker.url(target, paths[target])) as taker:
            sender.publish(f"{source} to {target}")
            message = taker.receive(timeout=5)
            assert message is not None
            assert message.text == f"{source} to {target}"
            message.ack()


def test_many_tasks_on_one_connection(broker: BrokerProcess, queue: str) -> None:
    async def main() -> None:
        async with aio.connect(broker.url("kokaq", f"/{queue}")) as client:
            published = await asyncio.gather(*(client.publish(b"%d" % number) for number in range(100)))
            assert len({each.id for each in published}) == 100

            async def work() -> list[bytes]:
                seen = []
                async for message in client.consume(window=4, idle=0.5):
                    seen.append(message.body)
                    await message.ack()
                return seen

            shares = await asyncio.gather(*(work() for _ in range(4)))
            assert sorted(map(int, itertools.chain(*shares))) == list(range(100))

    run(main(), 30)


class TestRestart:
    @pytest.fixture
    def own(self, tmp_path: Any) -> Iterator[BrokerProcess]:
        with BrokerProcess(tmp_path) as live:
            yield live

    @pytest.mark.parametrize("protocol", ["phpmq", "sspq", "kokaq"])
    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_a_consumer_survives_a_restart(self, own: BrokerProcess, protocol: str, how: str) -> None:
        path = {"phpmq": "/sspq", "sspq": "", "kokaq": "/default/sspq"}[protocol]

        async def main() -> None:
            url = own.url(protocol, path)
            async with aio.connect(url, reconnect=Reconnect(first=0.05, most=0.2)) as client:
                await client.publish(b"before")
                async with client.consume() as messages:
                    first = await anext(messages)
                    assert first.body == b"before"
                    await asyncio.to_thread(getattr(own, how))
                    await asyncio.to_thread(own.start)
                    with pytest.raises(NotHeld):
                        await first.ack()
                    again = await anext(messages)
                    assert (again.body, again.id) == (b"before", first.id)
                    await again.ack()
                    await client.publish(b"after")
                    assert (await anext(messages)).body == b"after"

        run(main(), 60)

    def test_idempotent_publishing_through_a_kill_loses_and_duplicates_nothing(self, own: BrokerProcess) -> None:
        async def main() -> None:
            url = own.url("kokaq", "/jobs")
            options: Any = {"reconnect": Reconnect(first=0.05, most=0.2), "idempotent": True}
            async with aio.connect(url, **options) as client:

                async def messages() -> Any:
                    for number in range(20_000):
                        if number == 5_000:
                            await asyncio.to_thread(own.kill)
                            await asyncio.to_thread(own.start)
                        yield b"%d" % number

                published = await client.publish_many(messages())
                assert published == Published(20_000, True, published.ids)
                assert len(set(published.ids)) == 20_000
                assert (await client.queue_info()).depth == 20_000

        run(main(), 60)

    def test_without_reconnect_a_disconnect_is_raised(self, own: BrokerProcess) -> None:
        with connect(own.url("phpmq", "/jobs")) as client:
            own.stop()
            with pytest.raises(Disconnected):
                client.receive(timeout=5)
            with pytest.raises(Disconnected) as caught:
                client.publish(b"x")
            assert caught.value.unsent == (Outgoing(b"x"),)
        with pytest.raises(ConnectFailed):
            connect(own.url("phpmq"))


class TestCheck:
    def test_a_look_at_the_connection(self, tmp_path: Any) -> None:
        with BrokerProcess(tmp_path) as live, connect(live.url("phpmq", "/q")) as client:
            client.check()
            live.kill()
            for _ in range(100):
                try:
                    client.check()
                except Disconnected:
                    break
                time.sleep(0.05)
            with pytest.raises(Disconnected):
                client.check()
        with pytest.raises(Closed):
            client.check()
