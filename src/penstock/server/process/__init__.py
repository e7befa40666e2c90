"""The life of the broker's process: its options, its log, from the first line to the last."""
