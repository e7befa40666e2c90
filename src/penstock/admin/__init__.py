"""The HTTP API, in its own process: what the broker does can be seen and changed, and measured."""
