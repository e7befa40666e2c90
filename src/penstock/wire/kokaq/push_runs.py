"""Many pushes of the same size to one queue: each byte that they must share is compared in all of them at once."""

from __future__ import annotations

from typing import Final

#: From this number of pushes on, it is faster than one by one.
MANY: Final = 100
#: The parts of a push that may differ in a run: the opaques of the message and of its operation.
_OPAQUE_AT: Final = 4
_OPAQUE_STOP: Final = 8
_OP_OPAQUE_AT: Final = 10


def pushes_of_one_size(
    data: bytes, pos: int, prefix: int, size: int
) -> tuple[tuple[bytes, ...], bytes, tuple[bytes, ...]] | None:
    """Opaques, operations' opaques and payloads of all pushes from ``pos`` on, if all are like the first, else None.

    A push is ``prefix`` bytes and a payload of ``size`` bytes.
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
