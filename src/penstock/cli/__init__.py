"""The ``penstock`` command. The page for its users is docs/commands.md.

* ``entry`` is where it starts, ``main`` has the table of commands, ``errors`` the exit code of each error.
* ``output`` and ``displays`` write everything that reaches a terminal: lines, tables, JSON, progress, escaped text.
* Each command is ``command`` in the module of its name. Several share ``api`` (the HTTP API), ``api_options`` (its
  flags), ``pages`` (long lists), ``formats`` (messages) and ``event_dump`` (events).
"""
