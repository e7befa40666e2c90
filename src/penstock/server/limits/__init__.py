"""Limits of the broker: the memory of queues, and room on the disk."""
