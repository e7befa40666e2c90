"""Ready-made Spark pipelines: ``archive``, ``insight``, ``replay`` and ``decode``. docs/pipelines.md describes them.

Each is a pure ``transform`` of data frames and a thin main around it. ``penstock pipeline NAME`` and ``spark-submit``
run the same mains.
"""
