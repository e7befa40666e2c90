"""Carrying out a repair. If it is interrupted at any moment, it can be repeated.

    1. move files that are not segments of this journal to NAME.damaged, rename segments with wrong names, and copy
       damaged ones to NAME.damaged
    2. write new segments under temporary names, and sync them
    3. record what is given up, and move unusable checkpoints to NAME.damaged
    4. rename the new segments, the last first; move damaged ones without a successor to NAME.damaged
    5. record where the journal begins, and overwrite `tail`

Until step 4 is done the journal is as damaged as before, or has an overlap that a start refuses and the next repair
cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from penstock.journal.files.disk import Disk, File, Part, write_all
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import load_folder, store_folder
from penstock.journal.files.segment_reader import WINDOW, walk
from penstock.journal.files.tail import TailWriter
from penstock.journal.format.block import HEADER_SIZE, BlockHeader
from penstock.journal.format.encoding import chain_to
from penstock.journal.format.segment import BRIDGE, RECHAINED, Segment, is_segment
from penstock.journal.repair.plan import NewSegment, RepairPlan
from penstock.journal.repair.survey import MOVED, Progress

ASIDE = ".damaged"
_NEW = ".repair"


def carry_out(disk: Disk, plan: RepairPlan, progress: Progress = lambda size: None) -> list[str]:
    """Carry out a plan. Returns the names of the files set aside. The caller holds the folder's lock."""
    for name in disk.names():
        if name.endswith(_NEW):
            disk.unlink(name)
    kept = [_move_aside(disk, name) for name in plan.strays]
    _rename(disk, plan.renamed)
    kept += [_copy_aside(disk, name, progress) for name in plan.copied]
    for new in plan.new:
        _write(disk, new, progress)
    disk.sync()
    if plan.makes_folder and FOLDER in disk.names():
        kept.append(_copy_aside(disk, FOLDER, progress))
    before = plan.folder if plan.makes_folder else load_folder(disk) or plan.folder
    store_folder(disk, plan.folder._replace(start=before.start))
    kept += [_move_aside(disk, name) for name in plan.moved if not is_segment(name)]
    disk.sync()
    for new in sorted(plan.new, key=lambda new: new.header.first, reverse=True):
        disk.rename(new.name + _NEW, new.name)
        disk.sync()
    kept += [_move_aside(disk, name) for name in plan.moved if is_segment(name)]
    disk.sync()
    if before.start != plan.folder.start:
        store_folder(disk, plan.folder)
    assert plan.tail is not None
    last = plan.tail
    tail = TailWriter(disk, last.durability, last.identity)
    tail.publish(last.committed, last.floor, last.start, last.epoch)
    tail.keep()
    tail.close()
    return kept


def _rename(disk: Disk, renamed: list[tuple[str, str]]) -> None:
    """Rename segments, which may have each other's names, via temporary names that a survey recognizes."""
    for old, new in renamed:
        if old != new + MOVED:
            disk.rename(old, new + MOVED)
    disk.sync()
    for _, new in renamed:
        disk.rename(new + MOVED, new)
    disk.sync()


def _write(disk: Disk, new: NewSegment, progress: Progress) -> None:
    segment = Segment(new.header)
    with closing(disk.create(new.name + _NEW)) as file:
        write_all(file, [new.header.encode()], 0)
        if new.bridge is not None:
            write_all(file, new.bridge.parts, segment.blocks_end)
            segment.add(new.bridge.header)
        for header, parts in _blocks(disk, new, segment):
            write_all(file, parts, segment.blocks_end)
            segment.add(header)
            progress(header.length)
        _finish(file, segment, new)


def _blocks(disk: Disk, new: NewSegment, segment: Segment) -> Iterator[tuple[BlockHeader, list[Part]]]:
    """The blocks, each chained to the one written before it."""
    for run in new.runs:
        with closing(disk.open(new.source)) as source:
            for header, view, _ in walk(source, run.offset, run.stop):
                if header.previous == segment.chain:
                    yield header, [view]
                else:
                    chained, raw = chain_to(header, segment.chain)
                    yield chained, [raw, view[HEADER_SIZE:]]


def _finish(file: File, segment: Segment, new: NewSegment) -> None:
    index, footer = segment.footer(clean=new.clean)
    flags = footer.flags | (BRIDGE if new.bridge is not None else 0)
    if new.chain not in (None, footer.chain):
        footer, flags = footer._replace(chain=new.chain), flags | RECHAINED
    write_all(file, [index, footer._replace(flags=flags).encode()], segment.blocks_end)
    file.sync()


def _copy_aside(disk: Disk, name: str, progress: Progress) -> str:
    """Copy a file to a free name. The original stays until it is replaced."""
    kept = _free_name(disk, name)
    with closing(disk.open(name)) as source, closing(disk.create(kept)) as copy:
        for at in range(0, source.size(), WINDOW):
            data = source.read(WINDOW, at)
            write_all(copy, [data], at)
            progress(len(data))
        copy.sync()
    return kept


def _move_aside(disk: Disk, name: str) -> str:
    kept = _free_name(disk, name)
    disk.rename(name, kept)
    return kept


def _free_name(disk: Disk, name: str) -> str:
    names, kept, number = set(disk.names()), name + ASIDE, 2
    while kept in names:
        kept, number = f"{name}{ASIDE}-{number}", number + 1
    return kept
