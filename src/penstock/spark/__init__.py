"""Spark: the data source and the pipelines."""
