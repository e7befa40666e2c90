"""Lines: a protocol of text lines. This is its registration; each part is a module.

A message is a line: ``LINE``, a verb, and the verb's arguments. A client sends::

    LINE PUT queue body      publish; answered with OK and an ID once the message is on disk
    LINE GET queue           one message, as soon as there is one: MSG; not more than one at a time
    LINE ACK                 done with it
    LINE PING                answered with PONG

"""

from penstock.protocols import Protocol

LINES = Protocol(
    name="lines",
    title="Lines",
    port=9777,
    listener="lines_protocol.listener:LinesListener",
    session="lines_protocol.session:LinesSession",
    client="lines_protocol.client:CLIENT",
    capture="lines_protocol.capture:CAPTURE",
)
