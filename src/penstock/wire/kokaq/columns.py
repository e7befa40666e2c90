"""Many messages of one size: what is the same in them is compared column by column, over all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: From so many on it is quicker than one by one.
MANY: Final = 100
#: Where so many were alike one by one, those behind them probably are, too.
FEW: Final = 8
#: The parts of a push that are not the same in a run: the opaques of the message and of its operation.
_OPAQUE_AT: Final = 4
_OPAQUE_STOP: Final = 8
_OP_OPAQUE_AT: Final = 10


def end_of_alike(data: bytes, pos: int, like: bytes, same: Sequence[int]) -> int:
    """Behind the messages at ``pos`` that are of the size of ``like`` and have its bytes at these places.

    It looks at ``MANY`` at a time: there may be some more.
    """
    length = len(like)
    while len(data) - pos >= MANY * length and _are_alike(data, pos, MANY, like, same, length):
        pos += MANY * length
    return pos


def _are_alike(data: bytes, pos: int, count: int, like: bytes, same: Sequence[int], length: int) -> bool:
    stop = pos + count * length
    return all(data[pos + at : stop : length].count(like[at]) == count for at in same)


def pushes_of_one_size(
    data: bytes, pos: int, prefix: int, size: int
) -> tuple[tuple[bytes, ...], bytes, tuple[bytes, ...]] | None:
    """Opaques, operations' opaques and payloads of all the pushes that can be at ``pos``, if they are like the first.

    ``prefix`` is how many bytes of each come before its payload, of ``size`` bytes. None: they are not alike.
    """
    length = prefix + size
    count = (len(data) - pos) // length
    stop = pos + count * length
    same = [*range(_OPAQUE_AT), *range(_OPAQUE_STOP, _OP_OPAQUE_AT), *range(_OP_OPAQUE_AT + 1, prefix)]
    if not _are_alike(data, pos, count, data[pos : pos + prefix], same, length):
        return None
    opaques = [data[at : at + 4] for at in range(pos + _OPAQUE_AT, stop, length)]
    payloads = [data[at : at + size] for at in range(pos + prefix, stop + 1, length)]  # an empty one begins at the stop
    return tuple(opaques), data[pos + _OP_OPAQUE_AT : stop : length], tuple(payloads)
