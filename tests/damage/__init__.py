"""Damaged journals: every damage to every kind of file, and the results of start, `verify` and `repair`."""
