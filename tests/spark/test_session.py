"""The session helper."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import OLDEST, version
from penstock.spark.session import DEFAULTS, prepare, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_environment(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)}
    prepare(environment)
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert version(Path(environment["JAVA_HOME"]) / "bin" / "java") >= OLDEST
    environment["PYSPARK_PYTHON"] = "python3.13"
    prepare(environment)
    assert environment["PYSPARK_PYTHON"] == "python3.13"


def test_there_is_one_session_per_process(spark: SparkSession) -> None:
    assert session("another").sparkContext is spark.sparkContext
    assert {key: spark.conf.get(key) for key in DEFAULTS} == DEFAULTS
