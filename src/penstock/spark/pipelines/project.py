"""A Declarative Pipelines project whose streaming tables read from the broker: ``penstock pipeline init DIR``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.pipelines.lake import LakeError

_SPEC = """\
# A Spark Declarative Pipeline on a Penstock broker. Run it with ./run, again and again: each run goes on where the
# last one stopped.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  # Where the broker's Flight endpoint is.
  penstock.endpoint: "{endpoint}"
  spark.sql.session.timeZone: UTC
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
-- What each queue did in each minute. Made anew in each run from the table of events.
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

_RUN = """\
#!/bin/sh
# Runs the pipeline. Spark keeps what it knows of the tables in this folder (metastore_db), so that the next run finds
# them; this can only be said on the command line.
cd "$(dirname "$0")" || exit 1
exec spark-pipelines run --conf spark.sql.catalogImplementation=hive "$@"
"""


def create(folder: str, endpoint: str) -> Iterator[str]:
    """Make the project. Yields what to say about it. Raises ``LakeError`` if the folder is not empty."""
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LakeError(f"{folder} is not empty: choose another folder")
    storage = target / "storage"
    (target / "transformations").mkdir(parents=True)
    storage.mkdir()
    spec = _SPEC.format(name=target.name, storage=storage.as_uri(), endpoint=endpoint)
    (target / "spark-pipeline.yml").write_text(spec)
    (target / "transformations" / "tables.py").write_text(_TABLES)
    (target / "transformations" / "queue_minutes.sql").write_text(_VIEWS)
    run = target / "run"
    run.write_text(_RUN)
    run.chmod(0o755)
    yield f"made {folder}: tables messages and events, view queue_minutes"
    yield f"run it with: cd {shlex.quote(folder)} && ./run"
