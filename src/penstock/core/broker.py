"""The broker for its callers: its state, and all commands by name.

A command takes the time as an argument, changes the state, stages what happened in ``log`` and leaves effects in
``effects``. Nothing here waits, reads a clock, or touches a disk; the same commands produce the same events.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodType

from penstock.core import commands
from penstock.core.state import BrokerState


class Broker(BrokerState):
    """All queues. The commands are bound as they are, so that calling one costs nothing extra."""

    def __init__(self, next_position: int = 1) -> None:
        super().__init__(next_position)
        for name, function in _COMPILED.items():
            self.__dict__[name] = MethodType(function, self)

    create_namespace = commands.queues.create_namespace
    delete_namespace = commands.queues.delete_namespace
    queue = commands.queues.find_queue
    create_queue = commands.queues.create_queue
    configure_queue = commands.queues.configure_queue
    delete_queue = commands.queues.delete_queue

    connect = commands.connect.connect
    disconnect = commands.connect.disconnect

    publish = commands.publish.publish

    subscribe = commands.receive.subscribe
    receive = commands.receive.receive
    peek = commands.receive.peek
    pop = commands.receive.pop
    lock = commands.lock.lock
    renew = commands.lock.renew

    acknowledge = commands.settle.acknowledge
    release = commands.settle.release
    requeue = commands.settle.requeue
    reject = commands.settle.reject

    lease = commands.lease.lease
    leases_of = commands.lease.leases_of
    settle_lease = commands.lease.settle_lease
    return_lease = commands.lease.return_lease
    settle_leases = commands.lease.settle_leases
    forget_reader = commands.lease.forget_reader

    write = commands.write.write
    was_written = commands.write.was_written
    check_written = commands.write.check_written
    check_written_in_steps = commands.write.check_written_in_steps
    end_writer = commands.write.end_writer

    redrive = commands.redrive.redrive
    move = commands.redrive.move
    purge = commands.purge.purge
    purge_dead = commands.purge.purge_dead
    delete_message = commands.purge.delete_message
    drop_damaged = commands.purge.drop_damaged
    set_aside = commands.set_aside.set_aside
    put_back = commands.set_aside.put_back

    find = staticmethod(commands.carry.find)
    lowest_position = commands.carry.lowest_position
    carry = commands.carry.carry

    tick = commands.tick.tick
    start = commands.lifecycle.start
    catalogue = commands.lifecycle.catalogue
    drain = commands.lifecycle.drain
    check = commands.lifecycle.check


#: Compiled commands. Such functions do not become methods when a class contains them, so each broker binds its own.
_COMPILED = {name: each for name, each in vars(Broker).items() if isinstance(each, BuiltinFunctionType)}
