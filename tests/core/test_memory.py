"""Backlog costs little memory, measured in a separate process and relative to an empty broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.broker import Broker
from penstock.core.budget import EXPIRE, LOOK
from penstock.core.properties import Properties

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
MILLION = 1_000_000
BATCH = 1_000

SCRIPT = """
import gc, resource, sys
from penstock.core.broker import Broker
from penstock.core.properties import Properties

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

count, batch, options = int(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3])
broker = Broker()
broker.create_namespace("default", 1)
queue = broker.create_queue("default", "q", 1)
peer = broker.connect(1, b"test")
payloads = [bytes(100)] * batch
broker.publish(peer, queue, payloads, 1)
broker.log.take()
before = resident()
for number in range(count // batch):
    broker.publish(peer, queue, payloads, 1_700_000_000_000_000 + number * 1_000, Properties(**options(number)))
    broker.log.take()
assert len(queue.ready) == count + batch
print((resident() - before) / count)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures through /proc")
@pytest.mark.parametrize(
    ("most", "options"),
    [
        (24, "lambda number: {}"),
        (48, "lambda number: {'ttl': 3_600_000_000}"),
        (48, "lambda number: {'priority': number % 10}"),
        (48, "lambda number: {'priority': number % 10, 'ttl': 60_000_000 * (1 + number % 7)}"),
    ],
    ids=["plain", "ttl", "priority", "both"],
)
def test_a_waiting_message_costs_few_bytes(most: int, options: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(MILLION), str(BATCH), options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) <= most


def test_ten_thousand_small_queues_work() -> None:
    broker = Broker()
    broker.create_namespace("default", NOW)
    peer = broker.connect(1, b"test")
    for number in range(10_000):
        queue = broker.create_queue("default", f"q{number}", NOW)
        broker.publish(peer, queue, [b"x"] * 10, NOW, Properties(ttl=(1 + number % 5) * SECOND))
    broker.check()
    for number in range(0, 10_000, 2):
        queue = broker.queues[number + 1]
        broker.subscribe(peer, queue, 10, NOW)
        broker.acknowledge(peer, queue, list(queue.out), NOW)
        broker.tick(NOW)
    ticks = 1
    while broker.tick(NOW + 5 * SECOND) is not None:
        ticks += 1
    assert ticks * EXPIRE < 2 * (50_000 + 5_000 * LOOK)
    assert sum(len(queue.dead) for queue in broker.queues.values()) == 50_000
    broker.check()
