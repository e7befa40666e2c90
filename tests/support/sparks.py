"""Spark for tests: one session for all of them, and brokers with their Flight endpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client import connect
from penstock.companions.readers_and_writers import ReaderRow
from penstock.flight.calls import Action, Range, Read, Readers, Status
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.options import SourceSettings
from penstock.spark.session import session
from support.brokers import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
#: Lets Spark's Python workers import our modules from any folder.
PYTHON_PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])


@contextmanager
def shared_session(folder: Path) -> Iterator[SparkSession]:
    """A small session that leaves nothing outside of the folder."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "SPARK_LOCAL_DIRS")}
    os.environ |= {"PYTHONPATH": PYTHON_PATH, "SPARK_LOCAL_DIRS": str(folder / "local")}
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    made = session("penstock tests", "local[2]", conf)
    try:
        yield made
    finally:
        made.stop()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


#: A journal with almost no retention.
FORGETFUL = {"segment_bytes": 64 * 1024, "retention_bytes": 64 * 1024}


class SparkBroker(BrokerProcess):
    """A broker with a Flight endpoint, and shortcuts for Spark's tests."""

    def __init__(self, folder: Path, **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, **{"flight": {"address": "127.0.0.1:0"}, **options})

    @property
    def endpoint(self) -> str:
        """The URL of the endpoint."""
        return self.addresses["flight"]

    def publish(self, queue: str, *payloads: str | bytes) -> None:
        """Publish into a queue of namespace ``default``, and create it if needed."""
        with connect(self.url("kokaq", f"/default/{queue}")) as client:
            client.create_queue(exist_ok=True)
            client.publish_many(payloads)

    def take(self, queue: str) -> list[bytes]:
        """Receive and acknowledge all that is ready."""
        with connect(self.url("kokaq", f"/default/{queue}")) as client:
            payloads = []
            for message in client.consume(idle=0.2):
                payloads.append(bytes(message.body))
                message.ack()
            return payloads

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages."""
        self.take(queue)
        with connect(self.url("kokaq", f"/default/{queue}")) as client:
            client.delete_queue()

    def ask(self, action: Action, answer: type[T]) -> T:
        """Call an action of its endpoint."""
        with self.flight() as flight:
            return flight.ask(action, answer)

    @contextmanager
    def flight(self) -> Iterator[FlightEndpoint]:
        """A connection to its endpoint."""
        endpoint = FlightEndpoint(SourceSettings(endpoint=self.endpoint))
        try:
            yield endpoint
        finally:
            endpoint.close()

    def payloads(self, queue: str) -> list[bytes]:
        """All payloads ever published into a queue of namespace ``default``, read without Spark."""
        with self.flight() as flight:
            batches = flight.get(Read(queue=f"default/{queue}", columns=["payload"]))
            return [payload for batch in batches for payload in batch.column("payload").to_pylist()]

    def status(self) -> Range:
        """The range of positions in its journal."""
        return self.ask(Status(), Range)

    def readers(self) -> list[ReaderRow]:
        """The known readers."""
        return self.ask(Readers(), list[ReaderRow])

    def publish_until_trimmed(self, queue: str, position: int = 0) -> None:
        """Publish until retention has deleted a position. Needs a FORGETFUL journal."""
        deadline = time.monotonic() + 60
        while self.status().earliest <= max(position, 1):
            assert time.monotonic() < deadline, "retention did not come"
            self.publish(queue, *[b"x" * 10_000] * 20)
            time.sleep(0.1)

    def read(self, spark: SparkSession, **options: object) -> DataFrame:
        """Read as a batch."""
        reader = spark.read.format("penstock").option("endpoint", self.endpoint)
        return reader.options(**options).load()  # type: ignore[arg-type]

    def stream(self, spark: SparkSession, **options: object) -> DataFrame:
        """Read as a stream."""
        reader = spark.readStream.format("penstock").option("endpoint", self.endpoint)
        return reader.options(**options).load()  # type: ignore[arg-type]
