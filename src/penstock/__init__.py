"""Penstock: a durable message broker that speaks three wire protocols and feeds Apache Spark.

The rooms, each importing only what ARCHITECTURE.md allows it to:

* :mod:`penstock.wire` turns bytes into frames and frames into bytes, for PHPMQ, Kokaq and SSPQ.
"""
