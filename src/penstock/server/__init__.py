"""The broker: the only package that knows nearly all the others, since it puts them together.

``runtime`` is the running broker on its event loop; each folder is a part of it.
"""
