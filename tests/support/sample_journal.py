"""A small journal with messages and events of every kind. Times are fixed, so nothing expires during a test."""

from __future__ import annotations

from penstock.core.policy import SECOND
from penstock.core.properties import Properties
from penstock.journal.contract import OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.server.engine.engine import Engine
from support.journals import open_folder

NOW = 1_750_000_000 * SECOND
#: The year 2100, so that messages with a TTL outlive the tests.
LATER = 4_102_444_800


def make_journal(folder: str) -> None:
    """Two segments, with a clean stop and a checkpoint between them."""
    options = OwnerOptions(reserve=4096)
    opened = open_folder(RealDisk(folder), NOW, options, min_free=0)
    _first_half(opened.engine)
    opened.engine.log.sync()
    opened.upkeep.checkpoint(NOW + 2 * SECOND, clean=True)
    opened.engine.log.close()
    engine = open_folder(RealDisk(folder), NOW + 3 * SECOND, options, min_free=0).engine
    broker = engine.broker
    mails = broker.queue("default", "mails")
    assert mails is not None
    sspq = broker.connect(9, b"sspq 127.0.0.1:9")
    broker.publish(sspq, mails, [b"after the checkpoint"], NOW + 3 * SECOND, Properties(retries=3))
    engine.commit(NOW + 3 * SECOND)
    engine.log.close()


def _first_half(engine: Engine) -> None:
    broker = engine.broker
    broker.create_namespace("default", NOW)
    jobs = broker.create_queue("default", "jobs", NOW)
    mails = broker.create_queue("default", "mails", NOW)
    phpmq, kokaq = broker.connect(1, b"phpmq 127.0.0.1:1"), broker.connect(2, b"kokaq 127.0.0.1:2 QueueService")
    broker.publish(phpmq, jobs, [b"rejected", b"acknowledged", b"plain 1", b"plain 2"], NOW)
    broker.publish(phpmq, jobs, [b"with a life"], NOW, Properties(ttl=LATER * SECOND - NOW))
    broker.publish(phpmq, jobs, [b"for ever"], NOW, Properties(ttl=0))
    broker.publish(phpmq, mails, [b"large " + b"x" * 5000], NOW)
    engine.commit(NOW)
    broker.subscribe(phpmq, jobs, 2, NOW)
    rejected, acknowledged = list(phpmq.out)
    broker.subscribe(phpmq, jobs, 0, NOW)
    broker.reject(phpmq, jobs, [rejected], NOW + SECOND)
    broker.acknowledge(phpmq, jobs, [acknowledged], NOW + SECOND)
    broker.publish(
        kokaq, jobs, [b"urgent"], NOW, Properties(priority=9, correlation_id=b"order 17", request_id=b"r" * 16)
    )
    engine.commit(NOW + SECOND)
