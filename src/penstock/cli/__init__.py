"""The ``penstock`` command. The page for its users is docs/commands.md.

* ``main`` has the group, the exit codes and what becomes of errors; ``output`` is all that reaches a terminal.
* Each command has a file of its own. ``bench`` is a room by itself: it does not use the client, so that it measures
  the broker.
"""
