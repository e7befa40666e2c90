"""Upkeep of a running broker: checkpoints, retention, compaction, the search for damage, and the lease."""
