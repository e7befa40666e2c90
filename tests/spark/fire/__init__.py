"""Spark drivers and brokers killed while messages flow: what is read, written and consumed must be there exactly once."""
