"""What follows from a connection's width and line end: its joints, in both directions, ready-made.

What stands between two contents is a *joint*: the line end of the content (or message header) before, the packet
header, and its line end. A joint is of one length on a connection, and says nothing but a packet type and a size. So
decoder and encoder look joints up instead of reading and writing them.
"""

from __future__ import annotations

from functools import lru_cache
from sys import maxsize
from typing import Final

from penstock.wire.phpmq.frames import MAX_DIGITS, MAX_ID, MAX_NAME, MAX_TTL, Packet

#: Joints with smaller sizes are cached, which bounds the cache. Compared with a larger content, parsing its joint costs
#: little.
REMEMBERED: Final = 4096
#: The size of an invalid joint. Larger than any chunk, so that the test for completeness fails.
NO_SIZE: Final = maxsize
#: The content of each packet, and its least and most bytes. The connection limits payloads as well.
BOUNDS: Final[dict[Packet, tuple[str, int, int]]] = {
    Packet.QUEUE: ("a queue name", 1, MAX_NAME),
    Packet.CONTENT: ("a payload", 0, maxsize - 1),
    Packet.ID: ("a message ID", 0, MAX_ID),
    Packet.COUNT: ("a count", 1, MAX_DIGITS),
    Packet.TTL: ("a time to live", 1, MAX_DIGITS),
}


class Joints:
    """Maps the size of a content to the joint before it."""

    def __init__(self, width: int, line_end: bytes, packet: Packet) -> None:
        #: The cached joints.
        self.known: dict[int, bytes] = {}
        self._format = b"%bP%02d%%0%dd%b" % (line_end, packet, width - 3, line_end)
        self._what, self._least, self._most = BOUNDS[packet]

    def of(self, size: int) -> bytes:
        """The joint; ``ValueError`` for a size that the content may not have."""
        known = self.known.get(size)
        if known is not None:
            return known
        if not self._least <= size <= self._most:
            raise ValueError(f"{self._what} has {self._least} to {self._most} bytes, not {size}")
        joint = self._format % size
        if size < REMEMBERED:
            self.known[size] = joint
        return joint


class Sizes:
    """Maps a joint to the size in it."""

    def __init__(self, width: int, line_end: bytes, joints: Joints) -> None:
        #: The cached sizes of received joints.
        self.known: dict[bytes, int] = {}
        self._digits_start = len(line_end) + 3
        self._digits_stop = len(line_end) + width
        self._joints = joints

    def of(self, joint: bytes) -> int:
        """The size; ``NO_SIZE`` for anything that is no joint or has a size it may not have."""
        known = self.known.get(joint)
        if known is not None:
            return known
        try:
            size = int(joint[self._digits_start : self._digits_stop])
            # int() takes more than digits, and only the digits were looked at: the comparison sees the rest.
            if self._joints.of(size) != joint:
                return NO_SIZE
        except ValueError:
            return NO_SIZE
        if size < REMEMBERED:
            self.known[joint] = size
        return size


class Tails:
    """From a time to live to its packet, joint included."""

    def __init__(self, joints: Joints) -> None:
        #: The last ones that were asked for.
        self.known: dict[int, bytes] = {}
        self._joints = joints

    def of(self, ttl: int) -> bytes:
        """The packet; ``ValueError`` for a time to live out of range."""
        known = self.known.get(ttl)
        if known is not None:
            return known
        if not 0 <= ttl <= MAX_TTL:
            raise ValueError(f"a time to live is 0 to {MAX_TTL} seconds, not {ttl}")
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        digits = b"%d" % ttl
        self.known[ttl] = tail = self._joints.of(len(digits)) + digits
        return tail


class Form:
    """Everything that follows from a width and a line end. Shared by all connections: see :func:`form_of`."""

    def __init__(self, width: int, line_end: bytes) -> None:
        self.width = width
        self.line_end = line_end
        self.joint_size = width + 2 * len(line_end)
        self.joints = {packet: Joints(width, line_end, packet) for packet in Packet}
        self.sizes = {packet: Sizes(width, line_end, self.joints[packet]) for packet in Packet}
        #: Every message has a queue name: its joint is not looked for among the others.
        self.queue_sizes = self.sizes[Packet.QUEUE]
        self.tails = Tails(self.joints[Packet.TTL])


@lru_cache
def form_of(width: int, line_end: bytes) -> Form:
    """The form of this width and line end. There are six, each made once."""
    return Form(width, line_end)
