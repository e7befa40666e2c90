"""The durable, ordered log of events."""
