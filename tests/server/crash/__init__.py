"""Kills a real broker under load at random moments, again and again."""
