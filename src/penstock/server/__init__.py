"""The broker: the only package that knows nearly all the others, since it puts them together.

Each folder is a part of it; its ``README.md`` shows which part may import which.
"""
