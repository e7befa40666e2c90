"""Penstock beside other brokers, in one sitting: ``scripts/bench-peers``.

``generator/`` is the load in C, ``servers/`` has a module for each broker; ``workloads.py`` is what is measured,
``contestants.py`` of whom, ``sitting.py`` in which order, ``waiting.py`` what a backlog costs; ``figures.py``,
``table.py`` and ``page.py`` are what is told.
"""
