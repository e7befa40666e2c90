"""The bytes of the log in every kind of storage: blocks, segments, rows, the catalogue of queues, checkpoints."""
