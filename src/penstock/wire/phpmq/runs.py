"""The innermost loop of the server's fast pass: messages that differ only in one content."""

from __future__ import annotations

from penstock.wire.phpmq.forms import Sizes


def contents_of_run(
    data: bytes,
    pos: int,
    head: bytes,
    sizes: Sizes,
    joint_size: int,
    tail: bytes,
    line_end: bytes,
    limit: int,
) -> tuple[list[bytes], int]:
    """The contents of the complete messages at ``pos`` that consist of ``head``, a joint, a content and ``tail``.

    Line ends may separate them. ``sizes`` decodes the content's size from a joint; while messages begin like the two
    before, it is not looked up. The run ends before a content of more than ``limit`` bytes. Also returns the end of the
    last message.
    """
    end = len(data) - len(tail)
    contents: list[bytes] = []
    seen = sizes.known
    at = pos
    size = before = -1
    beginning = b""
    while True:
        joint = at + len(head)
        start = joint + joint_size
        if not beginning or data[at:start] != beginning:
            if data[at:joint] != head:
                break
            raw = data[joint:start]
            known = seen.get(raw)
            size = sizes.of(raw) if known is None else known
            beginning = head + raw if size == before else b""
            before = size
        stop = start + size
        if stop > end or size > limit or (tail and not data.startswith(tail, stop)):
            break
        contents.append(data[start:stop])
        at = pos = stop + len(tail)
        if line_end and data.startswith(line_end, at):
            at += len(line_end)
    return contents, pos
