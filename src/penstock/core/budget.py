"""How much is done in one go. Whatever a peer, the clock or an operator asks for beyond that is done by the next ticks.

Everybody waits while the broker works, so each of these is a few milliseconds of work. What is left over is taken up by
``tick``, which says that it wants to be called again at once; the caller lets everybody else have a turn in between.
"""

from __future__ import annotations

#: Messages given out from one tick to the next, to all who wait, in however many commands: 1.5 microseconds each.
HAND_OUT = 4_000
#: Of these, messages of one queue before the next queue has its turn, when there is more to give out than that.
HAND_OUT_SHARE = 500
#: Messages put back from one tick to the next because their connections are gone: some 4 microseconds each.
GIVE_BACK = 1_000
#: Locks that one tick ends. Each may be of another connection, and takes some 8 microseconds then.
END_LOCKS = 1_000
#: Messages that one tick expires, or lets in because their delay is over.
EXPIRE = 1_000
#: Expired messages that commands may come across from one tick to the next. One at a time they take 20 microseconds.
COME_ACROSS = 200
#: Messages that a queue which is too full lets go in one step, beyond as many as have come: each has to be looked for.
OVERFLOW = 200
#: What looking through a chunk for expired messages counts for, in messages.
LOOK = 8
#: Request IDs that one tick forgets, 1 microsecond each.
FORGET = 2_000
#: Partitions of a writer that are compared with what it says it has sent.
COMPARE = 1_000
#: Dead letters that one command sends back to work.
REDRIVE = 1_000
