"""The life of the broker's process, from the first line of its log to the last."""
