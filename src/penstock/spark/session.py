"""A Spark session with defaults for one machine: quiet, light, and with the right Python and Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings that differ from Spark's defaults, and why. ``conf`` of :func:`session` overrides these.
DEFAULTS = {
    # Pass a WHERE on queue, position or time to the broker, for reads with option pushFilters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Show times as they are stored.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
#: Further settings for a session within this process.
LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Shuffling into Spark's 200 partitions costs more than most queries on a single machine.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


def session(name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, created on first use; later, ``master`` and most of ``conf`` have no effect.

    Finds a Java (:mod:`penstock.spark.java`) if none runs yet, and lets executors use the Python that runs this.

    ``name`` is the application's name in Spark's pages and logs. ``master`` is where it runs: ``local[*]`` in this
    process, with a thread for each core; ``local[4]`` with four; ``spark://host:7077``, ``yarn`` or ``k8s://…`` on a
    cluster. ``conf`` has Spark's settings by name, such as ``{"spark.driver.memory": "4g"}``. They override
    ``DEFAULTS`` and, for a local master, ``LOCAL_DEFAULTS``.
    """
    prepare()
    if master.startswith("local"):
        # Otherwise, Spark looks up this machine's name in the network and warns about the result.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it must see the environment as prepare() leaves it

    settings = DEFAULTS | (LOCAL_DEFAULTS if master.startswith("local") else {}) | dict(conf or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare(environment: dict[str, str] | None = None) -> None:
    """Set the environment variables that Spark reads, unless they are set."""
    where = os.environ if environment is None else environment
    where["JAVA_HOME"] = java_home(where)
    where.setdefault("PYSPARK_PYTHON", sys.executable)
    where.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
