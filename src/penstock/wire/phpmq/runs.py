"""The innermost loop of the server's fast pass: messages that differ in one content only."""

from __future__ import annotations


def contents_of_run(
    data: bytes,
    pos: int,
    head: bytes,
    sizes: dict[bytes, int],
    joint_size: int,
    tail: bytes,
    line_end: bytes,
    limit: int,
) -> tuple[list[bytes], int]:
    """The contents of the complete messages at ``pos`` that are ``head``, a joint, a content and ``tail``.

    Line ends may stand between them. ``sizes`` has the size that a joint tells. The run ends before a content of more
    than ``limit`` bytes. Returns where the last message ends as well.
    """
    end = len(data) - len(tail)
    contents: list[bytes] = []
    at = pos
    while data.startswith(head, at):
        joint = at + len(head)
        start = joint + joint_size
        size = sizes[data[joint:start]]
        stop = start + size
        if stop > end or size > limit or (tail and not data.startswith(tail, stop)):
            break
        contents.append(data[start:stop])
        at = pos = stop + len(tail)
        if line_end and data.startswith(line_end, at):
            at += len(line_end)
    return contents, pos
