"""Bytes to frames and back, for the three protocols. Pure: no sockets, no clock, no threads.

* :mod:`~penstock.wire.stream` holds what the protocols share: the contract of a decoder, and its one error.
* :mod:`~penstock.wire.phpmq`, :mod:`~penstock.wire.kokaq` and :mod:`~penstock.wire.sspq` each hold one whole protocol:
  its frames, a decoder for what a server receives and for what a client receives, and the encoder for both.

A decoder is fed bytes as they come and returns the frames that are complete so far::

    decoder = sspq.Decoder(max_payload=16 * 2**20)
    for frame in decoder.feed(data):
        ...
    if decoder.error is not None:
        ...  # one WireError: protocol, offset, code, reason, and whether the peer is at fault

Frames are immutable values. A run of similar messages is one frame (fifty messages are one tuple of payloads), so that
pipelined traffic does not cost an object per message. The length of a run depends on how the bytes arrived, its content
does not: ``singles`` of each protocol module splits runs into single messages.
"""
