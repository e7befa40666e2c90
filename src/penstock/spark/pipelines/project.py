"""A Declarative Pipelines project whose streaming tables read from the broker: ``penstock pipeline init DIR``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from penstock.spark.lake.disk import LakeError

_SPEC = """\
# A Spark Declarative Pipeline on a Penstock broker. Run it with `spark-pipelines run`: each run continues where the
# last one stopped. If you move the folder, change the paths below.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  # The broker's Flight endpoint.
  penstock.endpoint: {endpoint}
  spark.sql.session.timeZone: UTC
  # One table after the other: streams that start together can meet a race in Spark ("Illegal size … of collection").
  spark.sql.pipelines.execution.maxConcurrentFlows: "1"
  # Keep Spark's catalogue of the tables in this folder, so that the next run finds them. These settings take effect
  # only while Spark starts, which is why they are Java options.
  spark.driver.extraJavaOptions: {java}
  spark.sql.legacy.setCommandRejectsSparkCoreConfs: "false"
"""

_TABLES = '''\
"""Streaming tables that read from the broker. Each run adds what is new."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


def _read(view: str) -> DataFrame:
    endpoint = spark.conf.get("penstock.endpoint")
    return spark.readStream.format("penstock").option("endpoint", endpoint).option("view", view).load()


@dp.table(comment="What was published, each message once.")
def messages() -> DataFrame:
    return _read("messages")


@dp.table(comment="The life of every message.")
def events() -> DataFrame:
    return _read("events")
'''

_VIEWS = """\
-- Events by queue and minute. Each run computes it from the table of events.
CREATE MATERIALIZED VIEW queue_minutes AS
SELECT
  namespace,
  queue,
  date_trunc('MINUTE', at) AS minute,
  count_if(kind = 'published') AS published,
  count_if(kind IN ('acknowledged', 'popped')) AS taken,
  count_if(kind = 'dead') AS dead
FROM events
WHERE queue IS NOT NULL
GROUP BY ALL
"""


def create(folder: str, endpoint: str) -> Iterator[str]:
    """Create the project. Yields lines for the user. Raises ``LakeError`` for an unsuitable folder."""
    target = Path(folder).absolute()
    if quote(str(target)) != str(target):
        # Spark 4.3 URL-encodes the path of a pipeline's storage, and then creates a folder of that name.
        text = "has characters in its path that Spark's pipelines can't handle"
        raise LakeError(f"{target} {text}: choose one of letters, digits, and . _ - ~")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LakeError(f"{folder} is not empty: choose another folder")
    storage = target / "storage"
    (target / "transformations").mkdir(parents=True)
    storage.mkdir()
    # A JSON string is a YAML string.
    values = {"name": target.name, "storage": f"file://{storage}", "endpoint": endpoint, "java": _java_options(target)}
    spec = _SPEC.format(**{name: json.dumps(value) for name, value in values.items()})
    (target / "spark-pipeline.yml").write_text(spec)
    (target / "transformations" / "tables.py").write_text(_TABLES)
    (target / "transformations" / "queue_minutes.sql").write_text(_VIEWS)
    yield f"created {folder}: tables messages and events, view queue_minutes"
    yield f"run it with: cd {shlex.quote(folder)} && spark-pipelines run"


def _java_options(folder: Path) -> str:
    """Options that make Spark keep its catalogue in the folder."""
    options = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/tables",
        "derby.system.home": str(folder),
        # Otherwise each run leaves a folder among the system's temporary files.
        "hive.downloaded.resources.dir": f"{folder}/storage/resources",
    }
    return " ".join(f'"-D{name}={value}"' for name, value in options.items())
