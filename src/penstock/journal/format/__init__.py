"""The bytes of the log, wherever it is kept: blocks, segments, rows, the catalogue of queues, checksums."""
