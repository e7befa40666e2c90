"""The ``penstock`` command.

* :mod:`~penstock.cli.main` is the group that all commands belong to.
* :mod:`~penstock.cli.journal` has ``penstock journal``; :mod:`~penstock.cli.dumping` its readable events.
* :mod:`~penstock.cli.showing` is how anything gets to a terminal: tables, progress, and escaped text.
"""
