"""Sample traffic through all three protocols: a day of a few queues, within seconds.

Some messages are rejected, expire, are returned, or lose their connection until their retries run out; some are left.
The clients count what they do, for a comparison with the tables.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Thread

from msgspec import Struct, field

from penstock.client import Client, Outgoing, connect
from penstock.client.sync import Message
from penstock.demo.failover import Loss

#: The queues, as namespace/queue. SSPQ's is the one that its listener names.
ORDERS, OFFERS, JOBS, PAYMENTS = "default/orders", "default/offers", "default/sspq", "shop/payments"
TRANSFERS = "shop/transfers"
#: Transfers before the first loss, and during each.
TRANSFERS_PER_LOSS = 100
#: Seconds that a transfer may take.
TRANSFER_SECONDS = 60.0
#: Seconds without a message after which a consumer stops.
IDLE = 1.0


class Addresses(Struct, frozen=True):
    """Where the broker listens, as host:port."""

    phpmq: str
    sspq: str
    kokaq: str


class ClientCounts(Struct):
    """The messages of one run, by queue and outcome; dead letters by queue and reason."""

    run: str
    published: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    popped: Counter[str] = field(default_factory=Counter)
    dead: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Messages by the protocol they came in through.
    protocols: Counter[str] = field(default_factory=Counter)

    def bodies(self, queue: str, protocol: str, count: int) -> Iterator[str]:
        """Payloads for a queue, counted as they are taken."""
        for number in range(count):
            self.published[queue] += 1
            self.protocols[protocol] += 1
            yield json.dumps({"run": self.run, "number": number, "amount": round(9.99 + number * 0.37, 2)})

    def is_ours(self, body: bytes) -> bool:
        """Whether a message belongs to this run. Queues may hold other messages."""
        with suppress(ValueError):
            decoded = json.loads(body)
            return isinstance(decoded, dict) and decoded.get("run") == self.run
        return False


def send_and_consume(addresses: Addresses, counts: ClientCounts, losses: Sequence[Loss] = ()) -> Iterator[str]:
    """Send and consume for some seconds; yields each step before it is taken. Raises ClientError.

    ``losses`` happen while messages flow.
    """
    yield "PHPMQ: orders are placed, some are refused; offers run out"
    _orders(addresses, counts)
    yield "SSPQ: jobs are done, some break their worker again and again"
    _jobs(addresses, counts)
    yield "Kokaq: payments with priorities and delays; some are left over"
    _payments(addresses, counts)
    if losses:
        yield from _transfers(addresses, counts, losses)
    yield "across: orders that came over PHPMQ are finished over Kokaq"
    _across(addresses, counts)


def _orders(addresses: Addresses, counts: ClientCounts) -> None:
    name = ORDERS.partition("/")[2]
    with connect(f"phpmq://{addresses.phpmq}/{name}") as client:
        client.publish_many(counts.bodies(ORDERS, "phpmq", 500))
        client.publish_many(counts.bodies(OFFERS, "phpmq", 60), queue=OFFERS.partition("/")[2], ttl=1)
        requeued = 0
        for message in client.consume(window=64, idle=IDLE):
            if not counts.is_ours(message.body):
                message.ack()
            elif (number := json.loads(message.body)["number"]) % 20 == 7:
                message.reject()
                counts.dead[ORDERS, "rejected"] += 1
            elif number % 50 == 3 and requeued < 10:
                message.requeue()
                requeued += 1
            elif number >= 480:
                break  # the rest of the window goes back to the queue with the connection
            else:
                message.ack()
                counts.acknowledged[ORDERS] += 1
    counts.dead[OFFERS, "expired"] += 60


def _jobs(addresses: Addresses, counts: ClientCounts) -> None:
    url = f"sspq://{addresses.sspq}"
    with connect(url) as client:
        client.publish_many(counts.bodies(JOBS, "sspq", 150))
    with connect(url) as client:
        _finish(client, JOBS, counts)
    with connect(url) as client:
        client.publish_many(counts.bodies(JOBS, "sspq", 5), retries=1)
    for _ in range(10):  # five messages, each delivered twice; then they have no retries left
        with connect(url) as client:
            client.receive(timeout=10)
    counts.dead[JOBS, "retries"] += 5


def _payments(addresses: Addresses, counts: ClientCounts) -> None:
    with connect(f"kokaq://{addresses.kokaq}/{PAYMENTS}") as client:
        client.create_namespace(PAYMENTS.partition("/")[0], exist_ok=True)
        client.create_queue(exist_ok=True)
        client.publish_many(
            Outgoing(body.encode(), priority=number % 3, correlation_id=f"cart {number}".encode())
            for number, body in enumerate(counts.bodies(PAYMENTS, "kokaq", 200))
        )
        client.publish_many(counts.bodies(PAYMENTS, "kokaq", 20), delay=0.5)
        for _ in range(20):
            if (message := client.lock()) is not None:
                message.release()
        for _ in range(40):
            popped = client.pop()
            if popped is not None and counts.is_ours(popped.body):
                counts.popped[PAYMENTS] += 1
        _finish(client, PAYMENTS, counts)
        client.publish_many(counts.bodies(PAYMENTS, "kokaq", 30))  # left over, in the view `live`


def _transfers(addresses: Addresses, counts: ClientCounts, losses: Sequence[Loss]) -> Iterator[str]:
    """Publish with confirmation while one process after the other is killed. The client repeats unanswered requests."""
    yield "Kokaq: transfers, each confirmed, whatever is lost"
    url = f"kokaq://{addresses.kokaq}/{TRANSFERS}"
    with connect(url, reconnect=True, idempotent=True, timeout=TRANSFER_SECONDS) as client:
        client.create_queue(exist_ok=True)
        bodies = counts.bodies(TRANSFERS, "kokaq", TRANSFERS_PER_LOSS * (len(losses) + 1))
        client.publish_many(next(bodies) for _ in range(TRANSFERS_PER_LOSS))
        for text, lose in losses:
            yield text
            losing = Thread(target=lose)
            losing.start()
            for _ in range(TRANSFERS_PER_LOSS):
                client.publish(next(bodies))
            losing.join()
        _finish(client, TRANSFERS, counts)


def _across(addresses: Addresses, counts: ClientCounts) -> None:
    with connect(f"kokaq://{addresses.kokaq}/{ORDERS}") as client:
        _finish(client, ORDERS, counts)
    time.sleep(1.5)  # until the offers expire


def _finish(client: Client, queue: str, counts: ClientCounts) -> None:
    """Acknowledge all messages of the queue."""
    batch: list[Message] = []
    for message in client.consume(idle=IDLE):
        counts.acknowledged[queue] += counts.is_ours(message.body)
        batch.append(message)
        if client.protocol == "SSPQ" or len(batch) >= 16:
            client.ack_many(batch)
            batch = []
    client.ack_many(batch)
