"""Limits of one step. Whatever a peer, the clock or an operator requests beyond them is done by the next ticks.

Everybody waits while the broker works, so each limit is a few milliseconds of work. ``tick`` continues the rest and
asks to be called again at once; in between, the caller lets everybody else have a turn.
"""

from __future__ import annotations

#: Messages delivered from one tick to the next, to all subscriptions, in however many commands: 1.5 microseconds each.
HAND_OUT = 4_000
#: Of these, messages of one queue before the next queue has its turn, when there are more to deliver than that.
HAND_OUT_SHARE = 500
#: Messages returned from one tick to the next because their connections are gone: about 4 microseconds each.
GIVE_BACK = 1_000
#: Locks that one tick ends. If each is of another connection, one takes about 8 microseconds.
END_LOCKS = 1_000
#: Messages that one tick expires, or makes ready because their delay is over.
EXPIRE = 1_000
#: Expired messages that commands may meet from one tick to the next. One at a time they take 20 microseconds.
COME_ACROSS = 200
#: Messages that a queue over its limits drops in one step, beyond the number that came in: each has to be searched for.
OVERFLOW = 200
#: The cost of searching a chunk for expired messages, in messages.
LOOK = 8
#: Request IDs that one tick forgets, 1 microsecond each.
FORGET = 2_000
#: Partitions of a writer that are compared in one step with what it says it has sent.
COMPARE = 1_000
#: Dead letters that one command re-drives.
REDRIVE = 1_000
