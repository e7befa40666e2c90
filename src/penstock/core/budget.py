"""Limits of one step. Work beyond them, for a peer, the clock or an operator, is left to the next ticks.

All peers wait while the broker works, so each limit is a few milliseconds of work. ``tick`` continues the rest and
asks to be called again at once; in between, the caller serves other peers.
"""

from __future__ import annotations

#: Messages delivered to all subscriptions from one tick to the next: 1.5 microseconds each.
HAND_OUT = 4_000
#: Of these, messages of one queue before the next queue has its turn.
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
#: Partitions of a writer that are checked in one step.
COMPARE = 1_000
#: Dead letters that one command re-drives.
REDRIVE = 1_000
