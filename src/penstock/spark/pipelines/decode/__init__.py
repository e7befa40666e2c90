"""``decode``: captures of any protocol become a table of frames. See docs/pipelines.md."""
