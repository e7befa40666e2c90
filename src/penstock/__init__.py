"""Penstock: a durable message broker that speaks three wire protocols and feeds Apache Spark.

The packages, each importing only what ARCHITECTURE.md allows it to:

* :mod:`penstock.wire`: bytes to frames and frames to bytes, for PHPMQ, Kokaq and SSPQ.
* :mod:`penstock.core`: the queues, a deterministic state machine from commands to events.
* :mod:`penstock.journal`: the durable, ordered log of events.
* :mod:`penstock.server`: the broker process: listeners, sessions, commits, limits, maintenance.
* :mod:`penstock.flight`: the Arrow Flight endpoint: the journal as tables, in a process of its own.
* :mod:`penstock.companions`: what the broker and the processes beside it share: their start, requests, rights.
* :mod:`penstock.admin`: the HTTP API, metrics and the web console, in a process of its own.
* :mod:`penstock.sql`: SQL over the same tables, in processes that the HTTP process starts.
* :mod:`penstock.web`: files for browsers.
* :mod:`penstock.client`: the Python client.
* :mod:`penstock.spark`: the PySpark data source, and the pipelines.
* :mod:`penstock.cli`: the ``penstock`` command.

What several of them share: :mod:`penstock.protocols` (the table of protocols), :mod:`penstock.schema` (kinds and
columns of events), :mod:`penstock.patterns` (how queues are picked by name).
:mod:`penstock.compiled` is imported first: it leads imports to modules that were compiled.
"""

from penstock import compiled

__all__ = ["compiled"]
