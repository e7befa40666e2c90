"""One simulated life: clients, broker, journal and disk, with crashes and faults, all from one seed.

Checks at every start and at the end:

* The recovered state is exactly the broker's state at the position up to which the journal survived.
* Under ``commit``, the journal survives at least up to the last commit; under the others at least up to the last sync.
* No message is confirmed or delivered before it is committed, and every payload is the one published at its position.
* No position that was shown ever names two messages.
* A damaged journal is refused or the damage reported; it is never used silently.
* After a crash, a reader gets the leases it was shown before, with the same messages in the same order.
* A confirmed chunk is kept, and adds nothing when it is resent.
* A full disk changes nothing and ends nothing: the write is retried when there is room.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

from penstock.core.broker import Broker
from penstock.core.queue import Queue
from penstock.core.recovery.restore import restore
from penstock.core.state import DeliveryEffect
from penstock.core.writers import ChunkKey
from penstock.journal.committer import Staged
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.errors import Gone, JournalDamaged, JournalRefused, LogFailed, LogFull
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.folder import load_folder
from penstock.journal.files.log import FileLog
from penstock.server.engine.engine import recover, table_of
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.journals import open_folder
from support.retaining import retain
from support.simdisk import SimDisk
from support.views import difference, forget_requests, lasting
from support.workload import Workload

SECOND = 1_000_000


class Broken(AssertionError):
    """A promise was not kept."""


class PowerCut(Exception):
    """The machine loses power while the broker waits for room."""


class World:
    """A simulated life, determined by its seed. ``run`` raises ``Broken`` or any other error it meets."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(seed)
        self.durability = self.random.choice((Durability.COMMIT, Durability.COMMIT, Durability.INTERVAL, Durability.OS))
        self.options = OwnerOptions(
            durability=self.durability,
            extent_bytes=self.random.choice((3_000, 10_000, 100_000)),
            extent_age=self.random.choice((5, 60, 3600)) * SECOND,
            reserve=4096,
        )
        #: Bytes that must stay free. In a small world other programs fill the disk now and then.
        self.min_free = self.random.choice((0, 0, 0, 5_000, 50_000))
        if self.min_free:
            self.disk.space = 4 * self.min_free
        self.retention = Retention(age=self.random.choice((0, 10, 100)) * SECOND, bytes=self.random.choice((0, 30_000)))
        self.workload = Workload(seed, Broker())
        #: The broker's state when the log reached a position: (time, state).
        self.known: dict[int, tuple[int, Any]] = {}
        #: Payloads of messages that were confirmed or delivered, by position.
        self.shown: dict[int, bytes] = {}
        #: Payloads of everything published in the current life, by position.
        self.published: dict[int, bytes] = {}
        #: Message positions of the leases that were shown to their reader and have not ended, by lease.
        self.shown_leases: dict[int, list[int]] = {}
        #: The newest confirmed chunk, by writer and partition.
        self.confirmed: dict[tuple[str, int], ChunkKey] = {}
        self.safe_end = 1
        self.flipped = False
        self.refused = False
        self.starts = 0
        self.opened: Opened | None = None

    def run(self, steps: int = 150) -> None:
        """Run client steps, commits, maintenance and crashes."""
        try:
            self._start()
            for _ in range(steps):
                if not self.refused:
                    self._live_on()
            if not self.refused:
                self._finish()
        except JournalRefused:
            if not self.flipped:
                raise
            self.refused = True

    def _live_on(self) -> None:
        try:
            self._step()
        except (LogFailed, PowerCut):
            self._die()

    # The life of the broker

    def _start(self) -> None:
        """Open the folder as a broker would, but check the recovered state before anything changes it."""
        self.starts += 1
        try:
            self._check_recovery()
            self.opened = open_folder(
                self.disk, self.workload.now, self.options, self.retention, min_free=self.min_free
            )
        except JournalRefused:
            if not self.flipped:
                raise
            self.refused = True
            return
        except LogFull:
            self._make_room()
            self._start()
            return
        except (LogFailed, OSError):
            self.disk.crash("any")
            self._start()
            return
        if self.starts == 1:
            self.workload = Workload(self.random.randrange(2**32), self.opened.engine.broker)
        else:
            self.workload.reconnect(self.opened.engine.broker)
            self._check_readers_and_writers()
        self.published.clear()

    def _check_recovery(self) -> None:
        folder = load_folder(self.disk)
        if folder is None:
            if self.safe_end > 1 and not self.flipped:
                raise Broken("a journal with commits has become a new one")
            return
        log = FileLog(self.disk, self.options)
        checkpoint = Checkpoints(self.disk, folder.identity).newest_good()
        if checkpoint is not None:
            log.check_reach(checkpoint.position)
        table = recover(log, table_of(checkpoint))
        reached = table.meta.position
        if reached < self.safe_end and not (self.flipped and log.report):
            raise Broken(f"the journal reaches {reached}, but was safe up to {self.safe_end}: {log.report}")
        if self.flipped:  # losses from damage were reported, and their positions may be reused
            self.safe_end = min(self.safe_end, reached)
            self.shown = {position: payload for position, payload in self.shown.items() if position < reached}
        # If damage destroys the only copy of a message and then all checkpoints are lost, no record of it remains.
        if reached > 1 and (table.meta.complete or not self.flipped):
            # Without a checkpoint, request IDs from trimmed segments are forgotten; nothing else is lost.
            until = self.workload.now if table.meta.complete else 2**63
            self._check_state(restore(table, log.end), reached, until)
        # Forget lost events: they were never shown, so their positions may be reused.
        self.known = {end: state for end, state in self.known.items() if end <= reached}
        if self.known and log.end < max(self.shown, default=0) + 1 and not self.flipped:
            raise Broken(f"position {log.end} will be used again, but {max(self.shown)} was shown")
        log.close()

    def _check_readers_and_writers(self) -> None:
        """Leases and chunks that were shown still hold, unless weaker durability or damage may have lost them."""
        assert self.opened is not None
        broker = self.opened.engine.broker
        if self.flipped or self.durability is Durability.OS:
            self.shown_leases.clear()
            self.confirmed.clear()
            return
        for position, messages in self.shown_leases.items():
            lease = broker.leases.get(position)
            if lease is not None and lease.messages != messages:
                raise Broken(f"lease {position} had {messages}, and has {lease.messages} now")
        for key in self.confirmed.values():
            before = broker.log.next_position
            if key.writer in self.workload.ended:  # it was ending when the power failed
                continue
            if not broker.write(b"spark again", key, [], self.workload.now).duplicate:
                raise Broken(f"{key} was confirmed, but is accepted again")
            if broker.log.next_position != before:
                raise Broken(f"{key} was resent and added rows")

    def _check_state(self, broker: Broker, reached: int, forget_until: int) -> None:
        if reached not in self.known:
            raise Broken(f"the journal ends at {reached}, where no commit ended")
        now, state = self.known[reached]
        found = forget_requests(lasting(broker, now), forget_until)
        state = forget_requests(state, forget_until)
        if self.flipped:  # a leased message that can't be read has left its lease, until a start finds it there again
            state, found = ({**each, "leased": 0, "leases": {}} for each in (state, found))
        if found != state:
            raise Broken(f"the state recovered at {reached} differs from the broker's:  {difference(state, found)}")

    def _step(self) -> None:
        assert self.opened is not None
        if self.random.random() < 0.02:
            self.disk.fail_at(
                self.disk.made + self.random.randrange(1, 30), self.random.choice(("EIO", "ENOSPC", "short"))
            )
        if self.min_free:
            self._share_the_disk()
        self.workload.step()
        chance = self.random.random()
        if chance < 0.4:
            self._commit()
        elif chance < 0.45:
            self.opened.engine.log.sync()
            self._settle()
        elif chance < 0.50:
            self._commit()
            self._chore(self._checkpoint if chance < 0.48 else self._retain)
        elif chance < 0.52:
            self._die()
        elif chance < 0.53:
            self._stop()
            self._start()

    def _share_the_disk(self) -> None:
        """Other programs fill the disk or free space; the broker checks it now and then."""
        assert self.opened is not None
        if self.random.random() < 0.05:
            self.disk.space += self.random.randrange(2 * self.min_free) - self.disk.left
        if self.random.random() < 0.2:
            self._chore(self._look)

    def _look(self) -> None:
        assert self.opened is not None
        self.opened.upkeep.admission.look()
        self.opened.upkeep.fill_reserve()

    def _make_room(self) -> None:
        self.disk.space += self.random.choice((100, 1_000, 10_000))

    def _write(self, staged: Staged) -> None:
        """Write one batch; wait as long as the disk is full."""
        assert self.opened is not None
        engine = self.opened.engine
        while True:
            before = (engine.log.end, engine.log.committed)
            try:
                engine.write([staged])
                return
            except LogFull:
                if (engine.log.end, engine.log.committed) != before:
                    raise Broken(f"a failed write on a full disk has moved the log from {before}") from None
            if self.random.random() < 0.1:
                raise PowerCut
            self._make_room()

    def _commit(self) -> None:
        """Stage and write everything; record the broker's state at each position where the log may end."""
        assert self.opened is not None
        engine = self.opened.engine
        staged = engine.stage(self.workload.now)
        for each in staged:
            self._note_published(each.batch)
        # A catalogue staged for a new segment does not change the state, so this also holds for the position after it.
        state = (self.workload.now, lasting(engine.broker, self.workload.now))
        for each in staged:
            self.known[each.batch.first + len(each.batch.kinds)] = state
        for each in staged:
            self._write(each)
        self._settle()

    def _note_published(self, batch: Any) -> None:
        payloads = iter(batch.columns.get("payload", ()))
        originals = iter(batch.columns.get("original", [0] * batch.messages))
        for row, kind in enumerate(batch.kinds):
            if kind in (1, 2):
                position, payload, original = batch.first + row, next(payloads), next(originals)
                if original and self.published.get(original, self.shown.get(original, payload)) != payload:
                    raise Broken(f"message {original} was carried forward with another payload")
                self.published[original or position] = payload

    def _settle(self) -> None:
        assert self.opened is not None
        engine = self.opened.engine
        engine.advance()
        if self.durability is not Durability.OS:
            committed = engine.log.committed
            self.safe_end = max([self.safe_end, *(end for end in self.known if end <= committed)])
        for effect in engine.released():
            if isinstance(effect, DeliveryEffect):
                self._check_delivery(effect)
        self._show_readers_and_writers()

    def _show_readers_and_writers(self) -> None:
        assert self.opened is not None
        engine, committed = self.opened.engine, self.opened.engine.log.committed
        leases = {at: lease for at, lease in engine.broker.leases.items() if at < committed}
        for position in leases.keys() - self.shown_leases.keys():
            messages = leases[position].messages
            self._check_payloads([at for at in messages if not (self.flipped and engine.damage([at]))])
        self.shown_leases = {at: lease.messages for at, lease in leases.items()}
        ended, self.workload.ended = self.workload.ended, set()
        self.confirmed = {chunk: key for chunk, key in self.confirmed.items() if key.writer not in ended}
        self.confirmed |= {chunk: key for chunk, (key, end) in self.workload.chunks.items() if end <= committed}

    def _check_delivery(self, effect: DeliveryEffect) -> None:
        self._check_payloads(self._sound(effect.queue, [out.item.position for out in effect.messages]))

    def _sound(self, queue: Queue, positions: list[int]) -> list[int]:
        """Return the readable messages. Damaged ones are set aside, as sessions do."""
        assert self.opened is not None
        engine = self.opened.engine
        try:
            engine.payloads(positions)
            return positions
        except (JournalDamaged, Gone) as error:  # not LogFailed: a disk that fails ends this life
            if not self.flipped:
                raise Broken(f"messages cannot be read: {error}") from error
        damaged = engine.damage(positions)
        engine.broker.set_aside(queue, {at: each.reason for at, each in damaged.items()}, self.workload.now)
        engine.broker.check()
        return [position for position in positions if position not in damaged]

    def _check_payloads(self, positions: list[int]) -> None:
        assert self.opened is not None
        engine = self.opened.engine
        for position, payload in zip(positions, engine.payloads(positions), strict=True):
            if position >= engine.log.committed:
                raise Broken(f"message {position} was shown before its commit")
            before = self.shown.setdefault(position, payload)
            published = self.published.get(position, payload)
            if not before == payload == published:
                raise Broken(f"message {position} was {before!r}, then {payload!r}; published was {published!r}")

    def _chore(self, chore: Callable[[], None]) -> None:
        """Write a checkpoint. If that fails, go on: the log contains everything."""
        with contextlib.suppress(OSError, LogFull):
            chore()

    def _checkpoint(self, *, clean: bool = False) -> None:
        assert self.opened is not None
        self.opened.upkeep.checkpoint(self.workload.now, clean=clean)

    def _retain(self) -> None:
        """Run retention and compaction. Compaction commits the carried messages, so the recorded state advances."""
        assert self.opened is not None
        retain(self.opened.upkeep, self.workload.now, lambda now: self._commit())

    def _die(self) -> None:
        """The machine loses power; perhaps the disk is damaged too."""
        self.disk.crash(self.random.choice(("none", "all", "any", "any")))
        if self.random.random() < 0.05:
            self._flip()
        if self.random.random() < 0.1:
            self._lose_checkpoints()
        self._start()

    def _lose_checkpoints(self) -> None:
        """Delete the checkpoints: the log alone must suffice, although its beginning may be trimmed."""
        for name in [name for name in self.disk.seen if name.endswith(".ckpt")]:
            with contextlib.suppress(OSError):
                self.disk.unlink(name)
        with contextlib.suppress(OSError):
            self.disk.sync()

    def _flip(self) -> None:
        names = [name for name, inode in self.disk.seen.items() if inode.seen]
        name = self.random.choice(sorted(names))
        self.flipped = True
        self.disk.flip(name, self.random.randrange(8 * len(self.disk.seen[name].seen)))

    def _stop(self) -> None:
        """Stop cleanly: drain, put everything back, commit, write a checkpoint, close."""
        assert self.opened is not None
        engine = self.opened.engine
        engine.broker.drain(self.workload.now)
        for connection in list(engine.broker.connections.values()):
            engine.broker.disconnect(connection, self.workload.now)
        engine.broker.draining = False
        while engine.broker.log.staged:
            self._commit()
        engine.log.sync()
        self._settle()
        self._chore(lambda: self._checkpoint(clean=True))
        with contextlib.suppress(LogFull):  # then the next start finishes the last segment
            engine.log.close()

    def _finish(self) -> None:
        """Stop cleanly, start once more, and read every live message."""
        try:
            self._stop()
        except (LogFailed, PowerCut):
            self.disk.crash("any")
        self._start()
        if self.refused:
            return
        assert self.opened is not None
        engine = self.opened.engine
        for queue in engine.broker.queues.values():
            positions = [item.position for lane in queue.ready.lanes.values() for item in lane]
            positions += [item.position for item in (*queue.delayed, *queue.dead)]
            positions += queue.out
            positions = self._sound(queue, positions)
            for position, payload in zip(positions, engine.payloads(positions), strict=True):
                if self.shown.get(position, payload) != payload:
                    raise Broken(f"message {position} has become {payload!r}")
