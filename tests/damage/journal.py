"""A journal with every structure that can be damaged, on a disk in memory, so that copies cost nothing."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from penstock.core.broker import Broker
from penstock.core.policy import SECOND
from penstock.journal.contract import OwnerOptions
from penstock.journal.files.log import FileLog
from penstock.journal.format.segment import is_segment
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.journals import open_folder
from support.retaining import retain
from support.simdisk import SimDisk
from support.workload import Workload

OPTIONS = OwnerOptions(extent_bytes=4_000, reserve=512)
KEEP = Retention(age=40 * SECOND)

Files = dict[str, bytes]


class Pristine(NamedTuple):
    """A journal as a broker left it, an older state of it, an unrelated journal, and the expected contents."""

    files: Files
    older: Files
    foreign: Files
    now: int
    #: The payloads of the live messages, and where they are stored, by position.
    live: dict[int, bytes]
    places: dict[int, int]
    #: The checksum of each event's block, by position.
    events: dict[int, int]


def disk_of(files: Files) -> SimDisk:
    """Return a disk with these files, all of them synced."""
    disk = SimDisk()
    for name, content in files.items():
        disk.create(name).write([content], 0)
    disk.crash("all")
    return disk


def files_of(disk: SimDisk) -> Files:
    """Return the files on a disk except the lock."""
    return {name: bytes(inode.seen) for name, inode in disk.seen.items() if name != "lock"}


@cache
def pristine(*, clean: bool) -> Pristine:
    """Build the journal. ``clean``: its broker was stopped instead of killed."""
    disk, now, older = _live(7, clean=clean)
    files = files_of(disk)
    assert sum(map(is_segment, files)) >= 5
    assert sum(name.endswith(".ckpt") for name in files) == 2
    opened = start(files, now)
    live = live_messages(opened)
    places = {position: opened.engine.moved.get(position, position) for position in live}
    assert opened.upkeep.log.start > 1
    assert any(place != position for position, place in places.items())
    assert any(place < opened.upkeep.log.extents()[2].first for place in places.values())
    opened.engine.log.close()
    return Pristine(files, older, files_of(_live(8, clean=True)[0]), now, live, places, events(files))


def _live(seed: int, *, clean: bool) -> tuple[SimDisk, int, Files]:
    """Run random clients, with compaction in between. Returns the disk, the time, and the files at an earlier time."""
    disk = SimDisk(seed)
    workload = Workload(seed, Broker())
    opened = open_folder(disk, workload.now, OPTIONS, KEEP)
    workload = Workload(seed, opened.engine.broker)
    older: Files = {}
    for step in range(1, 421):
        workload.step()
        opened.engine.commit(workload.now)
        if step in (120, 240, 330, 400):
            opened.upkeep.checkpoint(workload.now)
            retain(opened.upkeep, workload.now)
        if step == 250:
            older = files_of(disk)
    if clean:
        opened.upkeep.checkpoint(workload.now, clean=True)
        opened.engine.log.close()
    disk.crash("all")
    return disk, workload.now, older


def start(files: Files | SimDisk, now: int) -> Opened:
    """Start a broker on these files."""
    return open_folder(files if isinstance(files, SimDisk) else disk_of(files), now, OPTIONS, KEEP)


def live_messages(opened: Opened) -> dict[int, bytes]:
    """Return the payloads of readable live messages. Others are set aside, and the counters must add up."""
    engine = opened.engine
    found: dict[int, bytes] = {}
    for queue in engine.broker.queues.values():
        positions = [item.position for lane in queue.ready.lanes.values() for item in lane]
        positions += [item.position for item in (*queue.delayed, *queue.dead)]
        positions += queue.out
        damaged = engine.damage(positions)
        engine.broker.set_aside(queue, {at: damage.reason for at, damage in damaged.items()}, 0)
        sound = [position for position in positions if position not in queue.damaged]
        found |= zip(sound, engine.payloads(sound), strict=True)
    engine.broker.check()
    return found


def set_aside(opened: Opened) -> set[int]:
    """Return the positions of the messages that are set aside."""
    return {position for queue in opened.engine.broker.queues.values() for position in queue.damaged}


def events(files: Files) -> dict[int, int]:
    """Return every readable event: position -> checksum of its block, which covers it and all before."""
    log = FileLog(disk_of(files), OPTIONS)
    found: dict[int, int] = {}
    for block in log.read(0):
        found |= dict.fromkeys(range(block.first, block.end), block.header.body_crc)
    log.close()
    return found
