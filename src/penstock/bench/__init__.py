"""A load generator, for ``penstock bench`` and the project's own benches.

``load`` is a connection that makes load straight on the codecs; each protocol has its own beside it. ``worker`` is a
process full of such connections, ``run`` one run with all of them, ``report`` its results for people and programs.
"""
