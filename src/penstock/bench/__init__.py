"""A load generator, for ``penstock bench`` and the project's own benches.

``load`` has connections that generate load with the codecs alone; each protocol has a module with its own. ``worker``
is a process with many such connections, ``run`` is one run with several processes, ``report`` renders its results.
"""
