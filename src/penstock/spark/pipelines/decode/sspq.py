"""Captures of SSPQ: how to recognise them, and its frames as rows. Pure: no Spark."""

from __future__ import annotations

import json

from penstock.spark.pipelines.decode.captures import MAX_PAYLOAD, Capture, Guess
from penstock.spark.pipelines.decode.frames import FrameRows
from penstock.wire import sspq
from penstock.wire.sspq.located import LocatedDecoder

_NAMES: dict[type, str] = {
    sspq.Receive: "RECEIVE",
    sspq.Confirm: "CONFIRM",
    sspq.DeadReceive: "DEAD_RECEIVE",
    sspq.NoReceive: "NO_RECEIVE",
}


def _rows(frame: sspq.SspqFrame) -> FrameRows:
    match frame:
        case sspq.Send(retries, payloads):
            return FrameRows("SEND", len(payloads), payloads, retries=retries)
        case sspq.Other(kind):
            return FrameRows("OTHER", 1, fields=json.dumps({"kind": kind}))
    return FrameRows(_NAMES[type(frame)], 1)


def _decoder(found: Guess) -> LocatedDecoder:
    return LocatedDecoder(MAX_PAYLOAD)


#: Both directions look alike.
CAPTURE = Capture(magic=b"\x55\x99", decoder=_decoder, rows=_rows)
