"""Ready-made Spark pipelines: ``archive``, ``insight``, ``replay`` and ``decode``. docs/pipelines.md describes them.

Each consists of a pure ``transform`` of data frames and a thin main around it, which both ``penstock pipeline NAME``
and ``spark-submit`` run.
"""
