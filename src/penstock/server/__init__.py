"""The room that puts the house together.

* :mod:`~penstock.server.engine` runs the core on a log: start, group commit, effects that wait for their commit.
* :mod:`~penstock.server.opening` starts one from a data folder; :mod:`~penstock.server.commits` gives it its thread.
* :mod:`~penstock.server.cache` keeps the newest payloads at hand.
* :mod:`~penstock.server.upkeep` keeps the journal small: checkpoints, retention, compaction, and an eye on the disk.
"""
