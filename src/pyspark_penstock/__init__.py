"""Spark finds its Python data sources in modules whose names begin with ``pyspark_``. This is ours."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
