"""Browser assets shared by the console and the pipelines' report: ``charts/``, and third-party libraries."""
