"""Sorted arrays and chunks of messages and deadlines, so that no step grows with their number."""
