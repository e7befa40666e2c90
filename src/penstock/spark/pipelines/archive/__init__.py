"""``archive``: published messages become tables, each message once. See docs/pipelines.md."""
