"""Settings that hold for every test."""

from __future__ import annotations

import signal

from hypothesis import settings

# The same examples every time (a failure on one machine is a failure on all), no stop-watch (machines are busy), and
# nothing written into the checkout. Coverage-guided fuzzing is where new inputs come from.
settings.register_profile("house", derandomize=True, deadline=None, database=None)
settings.load_profile("house")

# A run started in the background of a script inherits that Ctrl-C is ignored, and so would every command it starts. The
# tests of Ctrl-C need it as it is on a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
