"""Shared by the broker and its companion processes: their start, what they ask the broker, and rights of clients."""
