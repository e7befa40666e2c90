"""The HTTP API, metrics and the console, in a companion process of the broker."""
