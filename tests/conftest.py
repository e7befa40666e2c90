"""Settings that hold for every test."""

from __future__ import annotations

from hypothesis import settings

# The same examples every time (a failure on one machine is a failure on all), no stop-watch (machines are busy), and
# nothing written into the checkout. Coverage-guided fuzzing is where new inputs come from.
settings.register_profile("house", derandomize=True, deadline=None, database=None)
settings.load_profile("house")
