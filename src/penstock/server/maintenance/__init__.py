"""Upkeep of a running broker: checkpoints, retention, compaction, and the search for damage."""
