"""The bytes of the log, wherever it is kept: blocks, rows, the catalogue of queues, checksums."""
