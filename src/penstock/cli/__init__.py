"""The ``penstock`` command. The page for its users is docs/commands.md.

* ``entry`` is where it starts; ``main`` is the group that all commands belong to, their exit codes, and what becomes of
  errors.
* ``showing`` and ``output`` are how anything gets to a terminal: tables, progress, and escaped text.
* Each command has a module of its own; ``formats`` is how messages are written, ``dumping`` how events are.
  ``bench`` is a package: it does not use the client, so that it measures the broker.
"""
