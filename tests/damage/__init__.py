"""Damaged journals: every damage to every kind of file, and what start, `verify` and `repair` make of it."""
