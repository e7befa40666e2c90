"""PHPMQ frames to bytes, for either side and in any style. The layout is drawn in ``decode``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from penstock.wire.phpmq.forms import Form, Joints, form_of
from penstock.wire.phpmq.frames import (
    Acknowledge,
    Consume,
    Dispatch,
    MessageType,
    Packet,
    PhpmqFrame,
    Publish,
    Reject,
    Requeue,
    Style,
)

# A member is looked up in many steps: these are asked for with every delivery.
_DISPATCH, _CONTENT, _ID = MessageType.DISPATCH, Packet.CONTENT, Packet.ID


def encode(frames: Iterable[PhpmqFrame], style: Style) -> bytes:
    """The bytes of these frames in this style, for either direction.

    Whether a 001 has a TTL is the frame's choice, whether a 003 has one the style's, if it says so: TTLs are left out
    where the style has none, and where it has one a dispatch without TTLs says 0, never. In the lined form the last
    content has its line end too.

    Raises ``ValueError`` for what PHPMQ can't say: an empty or too long queue name, a too long ID, a TTL or a count out
    of range, a dispatch with unequal numbers of IDs, payloads and TTLs.
    """
    form = form_of(style.width, style.line_end)
    parts = [_encode_frame(frame, form, style.dispatch_ttl) for frame in frames]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _encode_frame(frame: PhpmqFrame, form: Form, dispatch_ttl: bool | None) -> bytes:
    match frame:
        case Publish(queue, payloads, ttl):
            return _like(MessageType.PUBLISH, queue, Packet.CONTENT, payloads, form, ttl=ttl)
        case Consume(queue, count):
            if count < 0:
                raise ValueError(f"a count has no sign, unlike {count}")
            return _like(MessageType.CONSUME, queue, Packet.COUNT, (b"%d" % count,), form)
        case Dispatch():
            return _dispatches(frame, form, frame.ttls is not None if dispatch_ttl is None else dispatch_ttl)
        case Acknowledge(queue, ids):
            return _like(MessageType.ACKNOWLEDGE, queue, Packet.ID, ids, form)
        case Requeue(queue, each, ttl):
            return _like(MessageType.REQUEUE, queue, Packet.ID, (each,), form, ttl=ttl)
        case Reject(queue, ids):
            return _like(MessageType.REJECT, queue, Packet.ID, ids, form)


def _like(
    kind: MessageType, queue: str, packet: Packet, contents: Sequence[bytes], form: Form, *, ttl: int | None = None
) -> bytes:
    """Messages that differ in one content only: one head before its joint, one tail behind it."""
    head = _head(kind, 2 if ttl is None else 3, queue, form)
    tail = form.line_end if ttl is None else form.tails.of(ttl) + form.line_end
    return _interleave((_before(contents, form.joints[packet], tail + head), contents), tail)


def _dispatches(frame: Dispatch, form: Form, dispatch_ttl: bool) -> bytes:
    ids, payloads = frame.ids, frame.payloads
    ttls = (0,) * len(ids) if frame.ttls is None else frame.ttls
    if not len(ids) == len(payloads) == len(ttls):
        numbers = f"{len(ids)}, {len(payloads)} and {len(ttls)}"
        raise ValueError(f"a dispatch has equal numbers of IDs, payloads and TTLs, not {numbers}")
    head = form.line_end + _head(_DISPATCH, 4 if dispatch_ttl else 3, frame.queue, form)
    columns = [_before(payloads, form.joints[_CONTENT], head), payloads, _before(ids, form.joints[_ID]), ids]
    if dispatch_ttl:
        columns.append(list(map(form.tails.of, ttls)))
    return _interleave(columns, form.line_end)


def _interleave(columns: Sequence[Sequence[bytes]], tail: bytes) -> bytes:
    """Join row by row. The first part of each row brings the tail of the row before: it is moved to the end."""
    parts = [tail] * (len(columns) * len(columns[0]) + 1)
    for place, column in enumerate(columns):
        parts[place : -1 : len(columns)] = column
    parts[0] = parts[0][len(tail) :]
    return b"".join(parts)


def _before(contents: Sequence[bytes], joints: Joints, start: bytes = b"") -> list[bytes]:
    """What stands before each content: ``start`` and its joint."""
    sizes = list(map(len, contents))
    if sizes and sizes.count(sizes[0]) == len(sizes):
        return [start + joints.of(sizes[0])] * len(sizes)
    made = {size: start + joints.of(size) for size in set(sizes)}
    return list(map(made.__getitem__, sizes))


@lru_cache(maxsize=1024)
def _head(kind: MessageType, count: int, queue: str, form: Form) -> bytes:
    """A message up to the end of its queue name."""
    name = queue.encode()
    return b"H01%03d%02d%b%b" % (kind, count, form.joints[Packet.QUEUE].of(len(name)), name)
