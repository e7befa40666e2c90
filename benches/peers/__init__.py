"""Penstock beside other brokers, in one sitting: ``scripts/bench-peers``.

``generator/`` is the load in C, ``servers/`` contains a module per broker. ``workloads.py`` lists what is measured and
``contestants.py`` for whom; ``sitting.py`` runs it in turns, and ``waiting.py`` measures backlogs. ``figures.py``,
``table.py`` and ``page.py`` render the results.
"""
