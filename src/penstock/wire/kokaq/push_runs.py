"""Many pushes to one queue that are all of one size: what is the same in them is compared over all of them at once."""

from __future__ import annotations

from typing import Final

#: From so many on it is quicker than one by one.
MANY: Final = 100
#: The parts of a push that are not the same in a run: the opaques of the message and of its operation.
_OPAQUE_AT: Final = 4
_OPAQUE_STOP: Final = 8
_OP_OPAQUE_AT: Final = 10


def pushes_of_one_size(
    data: bytes, pos: int, prefix: int, size: int
) -> tuple[tuple[bytes, ...], bytes, tuple[bytes, ...]] | None:
    """Opaques, operations' opaques and payloads of all the pushes that can be at ``pos``, if they are like the first.

    ``prefix`` is how many bytes of each come before its payload, of ``size`` bytes. None: they are not alike.
    """
    length = prefix + size
    count = (len(data) - pos) // length
    stop = pos + count * length
    for at in (*range(_OPAQUE_AT), *range(_OPAQUE_STOP, _OP_OPAQUE_AT), *range(_OP_OPAQUE_AT + 1, prefix)):
        if data[pos + at : stop : length].count(data[pos + at]) < count:
            return None
    opaques = [data[at : at + 4] for at in range(pos + _OPAQUE_AT, stop, length)]
    payloads = [data[at : at + size] for at in range(pos + prefix, stop + 1, length)]  # an empty one begins at the stop
    return tuple(opaques), data[pos + _OP_OPAQUE_AT : stop : length], tuple(payloads)
