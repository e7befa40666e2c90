"""``archive``: published messages go to a sink, by default tables, each message once. See docs/pipelines.md."""
