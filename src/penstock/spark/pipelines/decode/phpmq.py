"""Captures of PHPMQ: how to recognise them, and its frames as rows. Pure: no Spark."""

from __future__ import annotations

import json

from penstock.spark.pipelines.decode.captures import MAX_PAYLOAD, TO_CLIENT, TO_SERVER, Capture, Guess
from penstock.spark.pipelines.decode.frames import FrameRows
from penstock.wire import phpmq
from penstock.wire.phpmq.located import LocatedClientDecoder, LocatedServerDecoder


def _rows(frame: phpmq.PhpmqFrame) -> FrameRows:
    match frame:
        case phpmq.Publish(queue, payloads, ttl):
            return FrameRows("PUBLISH", len(payloads), payloads, queue=queue, ttl=ttl)
        case phpmq.Dispatch(queue, ids, payloads, ttls):
            return FrameRows("DISPATCH", len(ids), payloads, queue=queue, ids=ids, ttl=ttls)
        case phpmq.Acknowledge(queue, ids):
            return FrameRows("ACKNOWLEDGE", len(ids), queue=queue, ids=ids)
        case phpmq.Reject(queue, ids):
            return FrameRows("REJECT", len(ids), queue=queue, ids=ids)
        case phpmq.Requeue(queue, each, ttl):
            return FrameRows("REQUEUE", 1, queue=queue, ids=[each], ttl=ttl)
        case phpmq.Consume(queue, count):
            return FrameRows("CONSUME", 1, queue=queue, fields=json.dumps({"count": count}))


def _decoder(found: Guess) -> LocatedClientDecoder | LocatedServerDecoder:
    kind = LocatedClientDecoder if found.direction == TO_CLIENT else LocatedServerDecoder
    return kind(MAX_PAYLOAD)


def _guess(head: bytes, direction: str | None) -> tuple[str | None, None]:
    """A server sends dispatches and nothing else."""
    if direction is None and len(head) >= 6:
        direction = TO_CLIENT if head[3:6] == b"003" else TO_SERVER
    return direction, None


CAPTURE = Capture(magic=b"H01", decoder=_decoder, rows=_rows, guess=_guess, shows_direction=True)
