"""Shared by the broker and its companion processes: their start, their requests to the broker, and clients' rights."""
