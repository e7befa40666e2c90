"""Every damage to every kind of file, and the required results of start, `verify` and `repair`.

* They agree: a start is refused exactly if the survey predicts it, and succeeds after the repair.
* A refused start changes nothing, so putting the file back restores everything.
* No wrong payload is ever delivered.
* The reports add up: an event or live message is missing after a repair exactly if the repair reports it as lost.
  Without a repair nothing is given up.
* No meaningful byte is thrown away: a repair keeps replaced files under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random
from typing import NamedTuple

from damage.journal import Files, Pristine, disk_of, events, files_of, live_messages, set_aside, start
from penstock.journal.contract import GAP
from penstock.journal.errors import JournalRefused
from penstock.journal.format.segment import is_segment
from penstock.journal.repair.plan import plan
from penstock.journal.repair.rewrite import carry_out
from penstock.journal.repair.survey import Survey, survey

Change = Callable[[Files, Pristine], None]


class Damage(NamedTuple):
    """A change to some of the files."""

    name: str
    touches: frozenset[str]
    change: Change


class Wrong(AssertionError):
    """One of the rules above is broken."""


# Damages


def _flip(name: str, at: int) -> Change:
    def change(files: Files, _: Pristine) -> None:
        raw = bytearray(files[name])
        raw[at % len(raw)] ^= 0x10
        files[name] = bytes(raw)

    return change


def _put(name: str, content: Callable[[bytes, Pristine], bytes]) -> Change:
    def change(files: Files, before: Pristine) -> None:
        files[name] = content(files[name], before)

    return change


def _remove(*names: str) -> Change:
    def change(files: Files, _: Pristine) -> None:
        for name in names:
            files.pop(name, None)

    return change


def _swap(one: str, other: str) -> Change:
    def change(files: Files, _: Pristine) -> None:
        files[one], files[other] = files[other], files[one]

    return change


def _add(name: str, content: bytes) -> Change:
    def change(files: Files, _: Pristine) -> None:
        files[name] = content

    return change


def _zeros(raw: bytes, at: int, size: int) -> bytes:
    return raw[:at] + bytes(len(raw[at : at + size])) + raw[at + size :]


def damages(before: Pristine) -> Iterator[Damage]:
    """Return all single damages."""
    files, older, foreign = before.files, before.older, before.foreign
    segments, checkpoints = sorted(filter(is_segment, files)), sorted(name for name in files if name.endswith(".ckpt"))
    roles = {"oldest": segments[0], "second": segments[1], "before last": segments[-2], "last": segments[-1]}
    roles |= {"old checkpoint": checkpoints[0], "checkpoint": checkpoints[-1]}
    roles |= {"tail": "tail", "penstock.json": "penstock.json"}
    others = {"oldest": 0, "second": 1, "before last": -2, "last": -1}
    for role, name in roles.items():
        size = len(files[name])
        made: dict[str, Change] = {
            f"bit at {at}": _flip(name, at) for at in sorted({20, 164 % size, size // 2, size - 70, size - 10})
        }
        made["cut to nothing"] = _put(name, lambda raw, _: b"")
        made["cut in half"] = _put(name, lambda raw, _: raw[: len(raw) // 2])
        made["cut by ten bytes"] = _put(name, lambda raw, _: raw[:-10])
        made["all zeros"] = _put(name, lambda raw, _: bytes(len(raw)))
        made["zeros inside"] = _put(name, lambda raw, _: _zeros(raw, len(raw) // 3, 300))
        made["missing"] = _remove(name)
        theirs = sorted(each for each in foreign if each.endswith(name[-4:]))
        made["foreign"] = _add(name, foreign[theirs[others.get(role, -1)]])
        if name in older and older[name] != files[name]:
            made["old copy"] = _add(name, older[name])
        for what, change in made.items():
            yield Damage(f"{role}: {what}", frozenset({name}), change)
    yield from _extras(before, segments, checkpoints)


def _extras(before: Pristine, segments: list[str], checkpoints: list[str]) -> Iterator[Damage]:
    older, foreign = before.older, before.foreign
    junk = Random(1).randbytes(3000)
    trimmed = sorted(name for name in older if is_segment(name) and name not in before.files)
    replaced = sorted(name for name in older if name.endswith(".ckpt") and name not in before.files)
    strange = max(filter(is_segment, foreign))
    for name, touched, change in (
        ("swapped segments", segments[:2], _swap(*segments[:2])),
        ("swapped with the last", segments[-2:], _swap(*segments[-2:])),
        ("swapped checkpoints", checkpoints, _swap(*checkpoints)),
        ("a segment for a checkpoint", [checkpoints[0], segments[0]], _swap(checkpoints[0], segments[0])),
        ("junk as last segment", ["ffffffffffffff00.seg"], _add("ffffffffffffff00.seg", junk)),
        ("junk as first segment", ["0000000000000000.seg"], _add("0000000000000000.seg", junk)),
        ("junk as checkpoint", ["ffffffffffffff00.ckpt"], _add("ffffffffffffff00.ckpt", junk)),
        ("a foreign segment behind", ["00000000ffffffff.seg"], _add("00000000ffffffff.seg", foreign[strange])),
        ("a segment twice", ["0000000000000fff.seg"], _add("0000000000000fff.seg", before.files[segments[1]])),
        ("a trimmed segment back", [trimmed[0]], _add(trimmed[0], older[trimmed[0]])),
        ("the last trimmed one back", [trimmed[-1]], _add(trimmed[-1], older[trimmed[-1]])),
        ("a replaced checkpoint back", [replaced[0]], _add(replaced[0], older[replaced[0]])),
        ("no checkpoints", checkpoints, _remove(*checkpoints)),
        ("no segments", segments, _remove(*segments)),
        ("only the last segment", segments[:-1], _remove(*segments[:-1])),
        ("a file of no meaning", ["notes.txt"], _add("notes.txt", junk)),
    ):
        yield Damage(name, frozenset(touched), change)

    def only_an_old_checkpoint(files: Files, _: Pristine) -> None:
        _remove(*checkpoints)(files, before)
        files[replaced[0]] = older[replaced[0]]

    yield Damage("only an old checkpoint", frozenset({*checkpoints, replaced[0]}), only_an_old_checkpoint)


def pairs(before: Pristine) -> Iterator[list[Damage]]:
    """Return all pairs of damages to different files."""
    for one, other in combinations(damages(before), 2):
        if not one.touches & other.touches:
            yield [one, other]


# Checks


def check(before: Pristine, done: list[Damage]) -> None:
    """Damage a copy and check start, `verify` and `repair`. Raises Wrong, or any other failure."""
    files = dict(before.files)
    for damage in done:
        damage.change(files, before)
    found = survey(disk_of(files))
    _check_start(before, files, found)
    _check_repair(before, files, found)


def _check_start(before: Pristine, files: Files, found: Survey) -> None:
    disk = disk_of(files)
    try:
        opened = start(disk, before.now)
    except JournalRefused as error:
        _demand(not found.startable, f"the start was refused, but verify has no objection: {error}")
        _demand(files_of(disk) == files, "a refused start has changed something")
        return
    _demand(found.startable, f"it started, but verify said {found.problems}")
    live = live_messages(opened)
    _check_payloads(before, live)
    gone = before.live.keys() - live.keys() - set_aside(opened)
    torn = _torn(before, found)
    _demand(not gone or torn, f"the start gave up {sorted(gone)}")
    _demand(not torn or opened.report, "a cut was not reported")
    _demand(torn or not live.keys() - before.live.keys(), "messages have come back")
    opened.engine.commit(before.now)
    opened.engine.log.close()
    _check_put_back(before, files, files_of(disk), torn=bool(torn))


def _check_put_back(before: Pristine, files: Files, after: Files, *, torn: bool) -> None:
    """Run a broker on the repaired journal, then put the damaged segments back."""
    back = dict(after)
    for name in filter(is_segment, after):
        if name in before.files and files.get(name) == after[name]:
            back[name] = before.files[name]
    opened = start(back, before.now)
    live = live_messages(opened)
    _demand(torn or not set_aside(opened), "not all messages returned with the file")
    _demand(torn or live.keys() == before.live.keys(), "the files were put back, but not all messages returned")
    opened.engine.log.close()


def _check_repair(before: Pristine, files: Files, found: Survey) -> None:
    disk = disk_of(files)
    try:
        todo = plan(disk, found)
    except JournalRefused:
        _demand(found.folder is None and not found.segments, "it cannot be repaired")
        return
    _demand(todo.idle == (not found.problems), f"idle: {todo.idle}, with {found.problems}")
    if not todo.idle:
        carry_out(disk, todo)
    _check_kept(files, files_of(disk))
    again = survey(disk)
    _demand(not again.problems, f"after the repair: {again.problems}")
    _demand(plan(disk, again).idle, "a second repair finds something to do")
    _check_books(before, files_of(disk), found, todo.lost)


def _check_kept(files: Files, after: Files) -> None:
    """Check that every file still exists, perhaps under another name."""
    contents = set(after.values())
    for name, content in files.items():
        if name not in ("tail", "penstock.json"):
            _demand(content in contents or not content.strip(b"\0"), f"{name} was thrown away")


def _check_books(before: Pristine, files: Files, found: Survey, ranges: list[tuple[int, int]]) -> None:
    there = events(files)
    torn = _torn(before, found)
    lost = {position for position in before.events if any(low <= position < high for low, high in ranges)}
    gone = before.events.keys() - there.keys()
    bridges = {high - 1 for _, high in ranges} | {high + GAP - 1 for _, high in ranges}
    _demand(gone - torn <= lost, f"lost but not reported: {sorted(gone - lost)[:10]}, reported: {ranges}")
    _demand(lost <= gone | bridges, f"reported as lost but present: {sorted(lost - gone)[:10]}, reported: {ranges}")
    same = before.events.keys() & there.keys() - bridges
    _demand(all(before.events[at] == there[at] for at in same), "events have changed")
    opened = start(files, before.now)
    live = live_messages(opened)
    _check_payloads(before, live)
    missing = before.live.keys() - live.keys()
    excused = {at for at, place in before.places.items() if place in lost | torn or at in lost | torn}
    _demand(missing - set_aside(opened) <= excused, f"given up but not reported: {sorted(missing - excused)}")
    _demand(bool(ranges or torn) or not live.keys() - before.live.keys(), "messages have come back")
    _demand(bool(torn) or not set_aside(opened), "after a repair something is still set aside")
    opened.engine.commit(before.now)
    opened.engine.broker.check()
    opened.engine.log.close()


def _torn(before: Pristine, found: Survey) -> set[int]:
    """Return the events after the end, if they cannot be distinguished from an unconfirmed write."""
    known = max([found.end, *(problem.lost[1] for problem in found.problems if problem.lost)])
    return {position for position in before.events if position >= known}


def _check_payloads(before: Pristine, live: dict[int, bytes]) -> None:
    wrong = {at for at in live.keys() & before.live.keys() if live[at] != before.live[at]}
    _demand(not wrong, f"other payloads than were published: {sorted(wrong)}")


def _demand(fact: object, text: str) -> None:
    if not fact:
        raise Wrong(text)
