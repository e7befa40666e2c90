"""Message IDs: 64 bits that name the journal, 64 bits for the message's position; or 16 bytes a publisher asked for."""

from __future__ import annotations

from binascii import Error, hexlify, unhexlify
from collections.abc import Sequence
from struct import Struct, pack, unpack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.broker import Broker
from penstock.core.queue import Queue

#: From this number of messages on, numpy is faster.
MANY: Final = 100
_RAW: Final = Struct(">QQ")
_BIG_ENDIAN: Final = np.dtype(">u8")


class Ids:
    """Translates between positions and IDs, for one journal."""

    def __init__(self, identity: int, broker: Broker) -> None:
        self.identity = identity
        self._broker = broker
        self._text_prefix = b"%016x" % identity
        self._raw_prefix = identity.to_bytes(8, "big")

    def raw(self, queue: Queue, position: int) -> bytes:
        """The 16 bytes of a message's ID."""
        return queue.asked.get(position) or self.own_raw(position)

    def own_raw(self, position: int) -> bytes:
        """The 16 bytes of the ID of a message whose publisher asked for none."""
        return _RAW.pack(self.identity, position)

    def raws(self, queue: Queue, positions: range) -> tuple[bytes, ...]:
        """The 16 bytes of the IDs of messages that lie side by side."""
        if not queue.asked:
            identity, pack = self.identity, _RAW.pack
            if len(positions) == 1:
                return (pack(identity, positions[0]),)
            if len(positions) < MANY:
                return tuple([pack(identity, position) for position in positions])
            raw = self._many(np.arange(positions[0], positions[0] + len(positions)))
            return tuple([raw[at : at + 16] for at in range(0, len(raw), 16)])
        return tuple([self.raw(queue, position) for position in positions])

    def texts(self, queue: Queue, positions: Sequence[int]) -> list[bytes]:
        """The IDs of messages as 32 lowercase hex characters each."""
        if not queue.asked:
            if len(positions) < MANY:
                prefix, digits = self._text_prefix, hexlify(pack(f">{len(positions)}Q", *positions))
                return [prefix + digits[at : at + 16] for at in range(0, len(digits), 16)]
            texts = hexlify(self._many(positions))
            return [texts[at : at + 32] for at in range(0, len(texts), 32)]
        return [hexlify(self.raw(queue, position)) for position in positions]

    def _many(self, positions: Sequence[int] | NDArray[np.int64]) -> bytes:
        """The IDs of many messages, one after the other."""
        pairs = np.empty((len(positions), 2), _BIG_ENDIAN)
        pairs[:, 0] = self.identity
        pairs[:, 1] = positions
        return pairs.tobytes()

    def is_ours(self, raw: bytes) -> bool:
        """Whether an ID looks like one that this journal gives out by itself."""
        return raw[:8] == self._raw_prefix

    def position(self, raw: bytes) -> int | None:
        """The position that an ID names, whether or not anything is there. None: no ID of ours."""
        asked = self._broker.asked.get(raw)
        if asked is not None:
            return asked[1]
        if len(raw) != 16:
            return None
        identity, position = _RAW.unpack(raw)
        return position if identity == self.identity else None

    def raw_positions(self, ids: Sequence[bytes]) -> list[int]:
        """The positions that IDs of 16 bytes name, whether or not anything is there; 0 for those that are not ours."""
        if len(ids) == 1:
            return [self.position(ids[0]) or 0]
        if not self._broker.asked and (ours := self._own_raw_positions(b"".join(ids), len(ids))) is not None:
            return ours
        return [self.position(raw) or 0 for raw in ids]

    def positions(self, texts: Sequence[bytes]) -> list[int]:
        """The positions that IDs in hex name; those that are ill-formed or not ours are left out."""
        if not self._broker.asked and (ours := self._own_positions(texts)) is not None:
            return ours
        found = []
        for text in texts:
            try:
                position = self.position(unhexlify(text))
            except Error:
                continue
            if position is not None:
                found.append(position)
        return found

    def _own_positions(self, texts: Sequence[bytes]) -> list[int] | None:
        """The positions if all IDs are ours, as they nearly always are: all in one go."""
        if set(map(len, texts)) != {32}:
            return None
        try:
            raw = unhexlify(b"".join(texts))
        except Error:
            return None
        return self._own_raw_positions(raw, len(texts))

    def _own_raw_positions(self, raw: bytes, count: int) -> list[int] | None:
        """The same for IDs of 16 bytes one after the other."""
        if count < MANY:
            numbers = unpack(f">{2 * count}Q", raw)
            return list(numbers[1::2]) if numbers[::2].count(self.identity) == count else None
        pairs = np.frombuffer(raw, _BIG_ENDIAN).reshape(count, 2)
        return pairs[:, 1].tolist() if (pairs[:, 0] == self.identity).all() else None
