"""The broker against its model, briefly, on a journal in PostgreSQL that successive owners take over.

``PENSTOCK_LONG=1`` runs many more examples.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from core.test_broker_stateful import BrokerMachine
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.demo.postgresql import Server
from penstock.journal import OwnerOptions, open_journal
from support.postgres import fresh_schema

LONG = os.environ.get("PENSTOCK_LONG") == "1"


class BrokerOnDatabase(BrokerMachine):
    """Commits go to the database. A restart is a take-over, which reads all its state from there."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.journal = open_journal(fresh_schema(self.server), OwnerOptions(extent_bytes=3000))
        self.own()

    def own(self) -> None:
        self.ours = self.journal.own()
        self.ours.begin()

    def teardown(self) -> None:
        super().teardown()
        self.ours.close()

    @rule()
    def commit(self) -> None:
        log = self.ours.log
        for batch in self.broker.log.take():
            log.append(batch, batch.first, log.epoch, roll=log.wants_roll)
        self.broker.committed = self.committed_before = self.broker.log.next_position

    @rule(sure=st.integers(0, 9))
    def restart(self, sure: int) -> None:
        if sure >= 7:
            self.same_effects()
            self.commit()
            self.ours.close()
            self.own()
            self.table = Table()
            self.table.apply(self.ours.log.read(0))
            self.broker = restore(self.table, self.ours.log.end)
            self.broker.committed = self.committed_before = self.ours.log.end
            self.model.restart()
            self.tick(0)


def test_the_broker_matches_its_model_on_a_journal_in_postgresql(postgres: Server) -> None:
    class Machine(BrokerOnDatabase):
        server = postgres

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=500 if LONG else 15,
            phases=[Phase.generate, *([Phase.shrink] if LONG else [])],
            stateful_step_count=50,
            derandomize=not LONG,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
