"""Files shared for short-circuit reads when they are damaged or replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.companions.rights import Allowed
from penstock.flight.access import Caller, Peer
from penstock.flight.calls import Read, Share, Shared
from penstock.flight.history import History
from penstock.flight.machine import machine
from penstock.flight.problems import as_trouble
from penstock.flight.sharing import share
from penstock.journal.contract import OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.follower import JournalReader
from penstock.journal.shared_extents import SharedExtentReader
from support.journals import open_folder
from support.workload import MORNING

CALLER = Caller(Peer("127.0.0.1", "127.0.0.1:1", "", ""), Allowed(open=True))
HERE = machine()


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Two segments with messages of two queues."""
    opened = open_folder(RealDisk(tmp_path), MORNING, OwnerOptions(extent_bytes=2000, reserve=4096))
    engine, broker = opened.engine, opened.engine.broker
    broker.create_namespace("default", MORNING)
    queues = [broker.create_queue("default", name, MORNING) for name in ("jobs", "others")]
    connection = broker.connect(1, b"test")
    for _ in range(3):
        for queue in queues:
            broker.publish(connection, queue, [bytes(500)], MORNING)
        engine.commit(MORNING)
    engine.log.close()
    return History(JournalReader(tmp_path))


def test_with_damaged_names_nothing_is_shared_and_a_read_reports_it(history: History, tmp_path: Path) -> None:
    block = next(history.reader.read(1)).block  # the block that names the queues
    with min(tmp_path.glob("*.seg")).open("r+b") as file:
        file.seek(block.offset + block.header.length - 1)
        file.write(b"\xff")
    stop = history.reader.latest
    assert share(history, Share(start=1, stop=stop, machine=HERE), CALLER) == Shared(here=True)
    with pytest.raises(Exception, match="the body's checksum is wrong") as raised:
        list(history.read(Read(start=1, stop=stop, pattern="default/j*", columns=["position"]), CALLER))
    problem = as_trouble(raised.value).problem
    assert (problem.code, problem.text) == ("data-loss", "the journal is damaged: the body's checksum is wrong")
    rows = history.read(Read(start=1, stop=stop, columns=["position"]), CALLER)
    assert sum(batch.num_rows for batch in rows) == 6, "reads without names succeed"


def test_a_path_to_a_fifo_does_not_block(history: History, tmp_path: Path) -> None:
    """In another container the broker's path may lead to something else."""
    shared = share(history, Share(start=1, stop=history.reader.latest, machine=HERE), CALLER)
    path = Path(shared.extents[0].path)
    path.unlink()
    os.mkfifo(path)
    reader = SharedExtentReader(history.reader.identity, shared.extents)
    with pytest.raises(OSError, match="Illegal seek"):
        next(reader.read(1))
