"""Opening a data folder: damage that only the engine can detect."""

from __future__ import annotations

from penstock.journal.contract import OwnerOptions
from penstock.journal.format.segment import Segment
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.journals import open_folder
from support.retaining import retain
from support.simdisk import SimDisk
from support.workload import MORNING

SMALL = OwnerOptions(extent_bytes=2_000, reserve=4096)


def publish(opened: Opened) -> int:
    broker = opened.engine.broker
    queue = broker.queue("default", "q") or broker.create_queue("default", "q", MORNING)
    peer = broker.connections.get(1) or broker.connect(1, b"test")
    position = broker.publish(peer, queue, [b"payload" * 9], MORNING).first
    opened.engine.commit(MORNING)
    return position


def test_messages_whose_copies_are_lost_to_damage_are_set_aside_and_logged() -> None:
    """Old segments were deleted after their live messages were carried forward; then the copies are damaged."""
    disk = SimDisk(1)
    opened = open_folder(disk, MORNING, SMALL, Retention(age=0, bytes=1))
    opened.engine.broker.create_namespace("default", MORNING)
    for _ in range(3):
        publish(opened)
    queue = opened.engine.broker.queue("default", "q")
    assert queue is not None
    peer = opened.engine.broker.connections[1]
    for _ in range(60):  # enough history to trim
        opened.engine.broker.delete_message(peer, queue, publish(opened), MORNING)
        opened.engine.commit(MORNING)
    opened.upkeep.checkpoint(MORNING)
    assert retain(opened.upkeep, MORNING) > 0
    newest = opened.upkeep.log.extents()[-1]
    assert isinstance(newest, Segment)
    disk.crash("all")
    disk.unlink("tail")
    disk.sync()
    disk.flip(newest.name, 8 * (newest.blocks_end - 16))  # the last block contains the copies
    again = open_folder(disk, MORNING, SMALL, Retention(age=0, bytes=1))
    assert again.report[-1] == "3 live messages cannot be read, and are set aside"
    again.engine.commit(MORNING)
    again.engine.broker.check()
    recovered = again.engine.broker.queues[queue.id]
    assert (recovered.counters.balance, len(recovered.damaged), len(recovered.ready)) == (3, 3, 0)
    retain(again.upkeep, MORNING)
    again.engine.log.close()
    later = open_folder(disk, MORNING, SMALL)
    assert later.report == ["3 live messages cannot be read, and are set aside"]
    assert later.engine.broker.damaged == 3
