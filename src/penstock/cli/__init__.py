"""The ``penstock`` command. The page for its users is docs/commands.md.

* ``entry`` is where it starts, ``main`` has the table of commands, ``errors`` exit codes and what becomes of errors.
* ``output`` is how anything gets to a terminal: lines, tables, JSON, progress, and escaped text.
* Each command has a module, or a package, of its name, with ``command`` in it. What several share: ``endpoint`` asks
  the Flight endpoint, ``formats`` is how messages are written, ``event_dump`` how events are.
"""
