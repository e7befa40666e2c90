"""Shared by the broker's companion processes: starting them, their reports to the broker, and their clients' rights."""
