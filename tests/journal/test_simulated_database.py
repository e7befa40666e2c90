"""The simulated database and a real PostgreSQL give the same answers to the same statements."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.demo.postgresql import Server
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.database import (
    Database,
    DatabaseRefused,
    ExtentRow,
    NewBlock,
    NewExtent,
    ShardRow,
)
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from support.postgres import fresh_schema
from support.simdatabase import SimDatabase, SimServer

HEADER = bytes(64)


class Script:
    """Statements as brokers send them, and invalid ones that must be refused, generated from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.epoch = self.head = self.extent = 0

    def next(self) -> tuple[str, tuple[Any, ...]]:
        """Return the name of a method and its arguments."""
        random = self.random
        epoch = self.epoch - (random.random() < 0.1)
        name = random.choice(
            ["append"] * 6 + ["claim", "release", "renew", "seal", "trim", "unkeep", "values"] * 2 + READS
        )
        match name:
            case "append":
                return name, self._append(epoch)
            case "claim":
                return name, (random.choice(("a", "b")), random.choice((0.0, 1000.0)), random.choice((0, 0, 500)))
            case "release":
                return name, (epoch,)
            case "renew":
                return name, (epoch, 1000.0, random.randrange(5))
            case "seal":
                return name, (epoch, self.epoch + 1)
            case "trim":
                return name, (
                    epoch,
                    random.choice((self.extent, random.randrange(1, self.head + 1))),
                    [random.randrange(9)],
                )
            case "unkeep":
                return name, (epoch, random.randrange(9))
            case "values":
                return self._value(epoch)
            case "mark" | "blocks":
                extent = random.choice((self.extent, 1))
                return name, (extent, random.randrange(self.head + 1), *([60] if name == "blocks" else []))
            case "put_checkpoint":
                return name, (epoch, random.choice((self.head, self.head + 1, 1)), [b"one", b"two"], 2)
            case "checkpoint":
                return name, (random.choice((self.head, 1)),)
            case _:
                return name, ()

    def _append(self, epoch: int) -> tuple[Any, ...]:
        head = self.head - (self.random.random() < 0.1)
        first, end = self.head, self.head + self.random.randrange(1, 4)
        block = NewBlock(first, end, epoch, self.random.randrange(2**32), 5, self.random.randbytes(50))
        if self.extent and self.random.random() < 0.7:
            return epoch, head, block, 1000.0, 1
        sums = None
        if self.extent:
            sums = ExtentRow(self.extent, HEADER, 1, first, 100, 2, 5, 77, 1, finished=True, kept=False)
        return epoch, head, block, 1000.0, 1, NewExtent(HEADER, 1, sums)

    def _value(self, epoch: int) -> tuple[str, tuple[Any, ...]]:
        name, other = self.random.sample(("x", "y", "z"), 2)
        return self.random.choice(
            [
                ("put_value", (epoch, name, self.random.randbytes(3))),
                ("move_value", (epoch, name, self.random.choice((other, None)))),
                ("value", (name,)),
            ]
        )

    def learn(self, row: ShardRow) -> None:
        """Record the current row of the journal."""
        self.epoch, self.head, self.extent = row.epoch, row.head, row.extent


READS = ["shard", "extents", "blocks", "mark", "checkpoints", "checkpoint", "put_checkpoint", "drop"]


def ask(database: Database, name: str, arguments: tuple[Any, ...]) -> Any:
    """Return the answer without the parts that must differ."""
    if name == "append" and len(arguments) == 6:
        database.prepare(arguments[2].first)
    try:
        found = getattr(database, name)(*arguments)
    except DatabaseRefused as error:
        return type(error)
    if isinstance(found, ShardRow):
        return found._replace(identity=0, created=0, lease=found.lease > 0)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_both_give_the_same_answers(postgres: Server, seed: int) -> None:
    real = PostgresDatabase(parse_address(fresh_schema(postgres)))
    simulated = SimDatabase(SimServer(lambda: 1000.0))
    script = Script(seed)
    taken = set()
    try:
        for each in (real, simulated):
            each.make()
        script.learn(real.shard())
        for number in range(250):
            name, arguments = script.next()
            answers = [ask(each, name, arguments) for each in (real, simulated)]
            assert answers[0] == answers[1], (number, name, arguments)
            if answers[0]:
                taken.add(name)
            rows = [ask(each, "shard", ()) for each in (real, simulated)]
            assert rows[0] == rows[1], (number, name, arguments)
            script.learn(rows[0])
    finally:
        real.close()
    assert {"append", "claim", "trim", "put_value", "move_value", "put_checkpoint", "mark", "blocks"} <= taken
