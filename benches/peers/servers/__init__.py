"""The brokers, a module each: how one is started in a folder of its own, what it promises, and how it is installed."""
