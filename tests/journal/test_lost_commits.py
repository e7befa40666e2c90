"""A journal in the simulated database after the promotion of a standby that lacks commits."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from penstock.journal.contract import PACE_BEGAN, OwnerOptions
from penstock.journal.errors import CommitsLost, Fenced, JournalMissing, JournalRefused, LogAway
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import MADE_IN, ConnectionLost, ServerFacts
from penstock.journal.postgresql.journal import DatabaseJournal
from penstock.journal.postgresql.known_commits import OPERATOR, decode_note, forget
from penstock.journal.postgresql.lease import DatabaseLease
from penstock.journal.postgresql.log import DatabaseLog
from support.batches import published
from support.simdatabase import SimDatabase, SimServer, Tables


class Machine:
    """A server whose standby is not synchronous, and its brokers."""

    def __init__(self) -> None:
        self.now = PACE_BEGAN / 1e6 + 1000.0
        self.server = SimServer(lambda: self.now, synchronous=False)
        self._claims = count(1)

    def journal(self, notes: str = "") -> DatabaseJournal:
        return DatabaseJournal(
            lambda: SimDatabase(self.server),
            where="the database",
            url="postgresql://simulated",
            options=OwnerOptions(notes=notes),
            clock=Clock(lambda: self.now, lambda: int(self.now * 1e6), lambda seconds: None),
            owner=lambda: f"claim {next(self._claims)}",
            in_thread=False,
        )

    def accept_loss(self) -> None:
        """Accept the loss as an operator."""
        assert SimDatabase(self.server).accept_loss(OPERATOR, int(self.now * 1e6)) is not None

    def replicate(self) -> None:
        """Let the standby catch up."""
        timeline, incarnation = self.server.timeline, self.server.incarnation
        self.server.fail_over(self.server.unseen)
        self.server.timeline, self.server.incarnation = timeline, incarnation

    def lose(self) -> None:
        """Promote the standby in its current state, long after all leases have expired."""
        self.now += 100
        self.server.fail_over(0)


def add(log: DatabaseLog) -> None:
    log.append(published(log.end, [b"x"]), log.end, log.epoch)


def test_a_former_owner_reports_lost_commits_while_it_stands_by() -> None:
    machine = Machine()
    journal = machine.journal()
    owned = journal.own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    owned.close()
    machine.lose()
    with pytest.raises(CommitsLost, match="position 2 at least") as error:
        journal.stand_by().own()
    assert error.value.lost == (2, 3)
    with pytest.raises(CommitsLost):
        journal.own()


def test_no_broker_serves_before_an_operator_has_accepted_a_loss() -> None:
    machine = Machine()
    journal = machine.journal()
    owned = journal.own()
    add(owned.log)
    machine.replicate()
    for _ in range(51):
        add(owned.log)
    machine.lose()
    unaware = machine.journal().own()
    add(unaware.log)
    with pytest.raises(CommitsLost, match="positions 2 to 52 at least"):
        journal.own()
    with pytest.raises(CommitsLost, match="positions 2 to 52 at least"):
        add(unaware.log)
    with pytest.raises(CommitsLost, match="penstock journal accept-loss"):
        machine.journal().own()
    machine.accept_loss()
    for each in (machine.journal(), journal):
        again = each.own()
        add(again.log)
        again.close()


def test_the_note_of_an_owner_survives_its_restart(tmp_path: Path) -> None:
    machine, notes = Machine(), str(tmp_path)
    owned = machine.journal(notes).own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    machine.lose()
    with pytest.raises(CommitsLost, match="position 2 at least"):
        machine.journal(notes).own()
    machine.accept_loss()
    machine.journal(notes).own().close()


def test_the_note_of_a_standby_survives_its_restart(tmp_path: Path) -> None:
    machine, notes = Machine(), str(tmp_path)
    owned = machine.journal().own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    add(owned.log)
    standby = machine.journal(notes).stand_by()
    assert len(list(standby.catch_up())) == 3
    machine.lose()
    with pytest.raises(CommitsLost, match="position 2 at least"):
        machine.journal(notes).own()


@pytest.mark.parametrize("others", [0, 1])
def test_losing_a_block_that_was_never_safe_is_no_loss(tmp_path: Path, others: int) -> None:
    """A commit's wait for the standby is cancelled, the block is read, and then it is lost with the primary."""
    machine, notes = Machine(), str(tmp_path)
    owned = machine.journal().own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    following, taking_over = machine.journal(notes).stand_by(), machine.journal().stand_by()
    for standby in (following, taking_over):
        assert [block.first for block in standby.catch_up()] == [1, 2]
    machine.lose()
    for _ in range(others):
        other = machine.journal().own()
        add(other.log)
        other.close()
    with pytest.raises(LogAway, match="lacks the block at position 2, whose commit was not complete"):
        list(following.catch_up())
    with pytest.raises(LogAway, match="the journal is read again"):
        taking_over.own()
    for standby in (following, taking_over, machine.journal(notes).stand_by()):
        assert standby.checkpoint() is None
        assert sum(block.messages for block in standby.catch_up()) == 1 + others
        standby.own().close()


def test_an_emptied_database_is_not_refilled(tmp_path: Path) -> None:
    machine, notes = Machine(), str(tmp_path)
    owned = machine.journal(notes).own()
    add(owned.log)
    owned.close()
    machine.server.restore(Tables())
    with pytest.raises(JournalMissing, match=f"up to position 1: restore it.* accept-loss .* --data {notes}"):
        machine.journal(notes).own()
    assert machine.server.tables.shard is None
    machine.journal().own().close()
    machine.server.tables.shard = machine.server.tables.row(machine.now)._replace(identity=815)
    with pytest.raises(JournalMissing, match=r"has journal 000000000000032f, where this broker knows 0000000000001269"):
        machine.journal(notes).own()
    assert forget(notes) is not None
    machine.journal(notes).own().close()


def test_an_unreadable_note_is_reported() -> None:
    with pytest.raises(JournalRefused, match="note cannot be read: expected a note of the last block"):
        decode_note(b'{"identity": 5}', "note")


def test_no_position_of_a_restored_database_is_reused() -> None:
    """The same backup is restored several times, so the database itself does not know the positions lost earlier."""
    machine = Machine()
    first = machine.journal().own()
    add(first.log)
    first.close()
    backup = machine.server.tables.copy()
    used: set[int] = set()
    for _ in range(3):
        for _ in range(3):
            owned = machine.journal().own()
            for _ in range(3):
                assert owned.log.end not in used
                used.add(owned.log.end)
                add(owned.log)
            owned.close()
            machine.now += 2
            machine.server.incarnation += 1
        machine.server.restore(backup)
    assert len(used) == 27


def test_blocks_in_the_place_of_lost_ones_are_detected() -> None:
    machine = Machine()
    journal = machine.journal()
    owned = journal.own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    machine.lose()
    other = machine.journal().own()
    add(other.log)
    assert other.log.end > owned.log.end
    with pytest.raises(CommitsLost):
        journal.stand_by().own()
    with pytest.raises(CommitsLost):
        add(owned.log)


def test_a_lost_epoch_is_not_assigned_again() -> None:
    machine = Machine()
    first = machine.journal().own()
    first.close()
    machine.replicate()
    lost = machine.journal().own()
    machine.lose()
    other = machine.journal().own()
    assert other.log.epoch > lost.log.epoch + 1000
    with pytest.raises(Fenced):
        add(lost.log)
    with pytest.raises(Fenced):
        lost.lease.renew()


def test_an_owner_can_begin_its_next_epoch_after_a_claim_was_lost() -> None:
    machine = Machine()
    first = machine.journal().own()
    machine.replicate()
    machine.now += 100
    lost = machine.journal().own()
    machine.server.fail_over(0)
    first.log.seal(first.log.epoch + 1)
    with pytest.raises(Fenced):
        add(lost.log)
    add(first.log)


def test_a_block_is_looked_up_on_the_server_whose_settings_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    owned = machine.journal().own()
    add(owned.log)
    machine.replicate()
    cuts, facts = iter([True]), SimDatabase.facts
    machine.server.cuts_short = lambda: next(cuts, False)

    def promoted(database: SimDatabase) -> ServerFacts:
        machine.server.fail_over(0)
        return facts(database)

    monkeypatch.setattr(SimDatabase, "facts", promoted)
    add(owned.log)
    assert owned.log.committed == 3
    assert machine.server.tables.mark(1, 2) is not None, "it was resent"


def test_a_checkpoint_of_lost_events_is_refused() -> None:
    machine = Machine()
    owned = machine.journal().own()
    machine.replicate()
    add(owned.log)
    machine.server.fail_over(0)
    with pytest.raises((OSError, CommitsLost)):
        owned.checkpoints.write(2, b"{}", {})
    assert owned.checkpoints.positions() == []


def test_a_standby_does_not_continue_from_a_checkpoint_of_lost_events() -> None:
    machine = Machine()
    owned = machine.journal().own()
    add(owned.log)
    machine.replicate()
    add(owned.log)
    owned.checkpoints.write(3, b"{}", {})
    standby = machine.journal().stand_by()
    found = standby.checkpoint()
    assert found is not None
    assert (found.position, standby.position) == (3, 3)
    machine.lose()
    other = machine.journal().own()
    add(other.log)
    with pytest.raises(CommitsLost, match="position 2 at least"):
        list(standby.catch_up())


def test_a_database_lost_during_a_take_over_is_unavailable() -> None:
    machine = Machine()

    class Broken(SimDatabase):
        def value(self, name: str) -> bytes | None:
            if name == MADE_IN:
                return super().value(name)
            raise ConnectionLost("gone", denied=True)

    journal = DatabaseJournal(lambda: Broken(machine.server), where="the database", url="", in_thread=False)
    journal._clock = journal._clock._replace(sleep=lambda seconds: None, monotonic=count().__next__)
    with pytest.raises(LogAway, match="gone"):
        journal.own()
    machine.now += 0.001
    machine.journal().own()  # the lease was given back


def test_a_lease_that_was_never_taken_has_expired() -> None:
    lease = DatabaseLease(3.0, lambda: None, lambda: True, lambda: None)
    lease.extend(-100.0)
    assert lease.deadline < -97.0
