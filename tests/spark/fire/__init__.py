"""Spark drivers and brokers killed while messages flow: everything must be there exactly once."""
