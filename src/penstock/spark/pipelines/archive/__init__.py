"""``archive``: what was published becomes tables, each message once. See docs/pipelines.md."""
