"""The faults injected into a cluster. ``Cluster.restore`` repairs what a fault leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from random import Random
from typing import NamedTuple

import psycopg

from failover.cluster import DATABASE, PASSWORD, PATIENCE, ROLE, Cluster, Node, wait_until
from penstock.cli.errors import UNDECIDED
from penstock.journal import open_journal
from support import databasebackup
from support.brokers import Peer
from support.databasebackup import dump
from support.databaseproxy import Way
from support.raw import acknowledge, consume, publish, read_dispatch

#: Queues that a fault fills and empties itself.
COLD, LARGE = "cold", "large"
#: Raises the server's error for a full disk at every block.
FULL = """
create or replace function public.no_room() returns trigger language plpgsql as
    $$ begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
create trigger no_room before insert on penstock.blocks for each row execute function public.no_room();
"""
ROOM = "drop trigger if exists no_room on penstock.blocks"


#: Settings of the brokers' role, each of which would break a promise or stop commits if a session used it.
SETTINGS = {
    "client_min_messages": "error",
    "synchronous_commit": "off",
    "statement_timeout": "100ms",
    "lock_timeout": "1s",
    "idle_session_timeout": "200ms",
    "idle_in_transaction_session_timeout": "100ms",
    "default_transaction_isolation": "serializable",
    "exit_on_error": "on",
    "search_path": "public",
}
#: Ends the brokers' connections, so that changes to their role apply to the next ones.
END = f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'"


class Fault(NamedTuple):
    """One kind of fault. ``do`` returns the moment at which it began, on the monotonic clock."""

    name: str
    do: Callable[[Cluster, Node, Random], float]
    #: Another broker serves afterwards, because the old owner cannot.
    takes_over: bool = True
    #: The standby is promoted, and the new primary has no standby.
    promotes: bool = False
    #: The database has lost the latest confirmed commits, and an operator has accepted that. All brokers have ended.
    forgets: bool = False


def _past_lease(cluster: Cluster, random: Random) -> float:
    """Seconds in which a lease expires and another broker begins to serve."""
    return cluster.lease * random.uniform(2.0, 3.0) + 0.5


def kill_owner(cluster: Cluster, owner: Node, random: Random) -> float:
    """kill -9."""
    began = time.monotonic()
    owner.kill()
    cluster.wait_for_owner(other_than=owner)
    return began


def stop_owner(cluster: Cluster, owner: Node, random: Random) -> float:
    """A planned switch: SIGTERM."""
    began = time.monotonic()
    owner.stop()
    cluster.wait_for_owner(other_than=owner)
    return began


def freeze_owner(cluster: Cluster, owner: Node, random: Random) -> float:
    """SIGSTOP past its lease, then SIGCONT: it must not confirm, deliver or disturb."""
    began = time.monotonic()
    owner.freeze()
    try:
        cluster.wait_for_owner(other_than=owner)
        time.sleep(random.uniform(0.0, 1.0))
    finally:
        owner.thaw()
    return began


def freeze_briefly(cluster: Cluster, owner: Node, random: Random) -> float:
    """SIGSTOP for about a lease: another broker may or may not have become the owner."""
    owner.freeze()
    began = time.monotonic()
    time.sleep(cluster.lease * random.uniform(0.5, 1.3))
    owner.thaw()
    return began


def cut_both(cluster: Cluster, owner: Node, random: Random) -> float:
    """The owner's connections to the database are refused."""
    began = time.monotonic()
    owner.route.refuse()
    time.sleep(_past_lease(cluster, random))
    return began


def _swallow(*ways: Way) -> Callable[[Cluster, Node, Random], float]:
    def do(cluster: Cluster, owner: Node, random: Random) -> float:
        began = time.monotonic()
        owner.route.swallow(*ways)
        time.sleep(_past_lease(cluster, random))
        return began

    return do


def cut_briefly(cluster: Cluster, owner: Node, random: Random) -> float:
    """The connection breaks in the middle of commits, and is there again at once."""
    for _ in range(5):
        owner.route.cut_in(random.randrange(1, 6))
        time.sleep(random.uniform(0.0, cluster.lease / 10))
        owner.route.cut()
    return time.monotonic()


def fail_over(cluster: Cluster, owner: Node, random: Random) -> float:
    """The primary is killed, and the standby promoted."""
    cluster.pair.primary.kill()
    killed = time.monotonic()
    cluster.pair.fail_over()
    cluster.wait_for_owner()
    return killed


def put_back(cluster: Cluster, owner: Node, random: Random) -> float:
    """The database is restored from a backup, while all brokers are stopped."""
    url = cluster.url()
    backup = dump(url)
    _wait_for_more(url)
    for node in cluster.nodes:
        node.stop()
    databasebackup.put_back(url, backup)
    return _decide(cluster)


def lose_commits(cluster: Cluster, owner: Node, random: Random) -> float:
    """The standby stops replicating, the primary stops waiting for it, and then only the standby is left."""
    pair = cluster.pair
    pair.standby.stop()
    pair.primary.configure("synchronous_standby_names", "")
    _wait_for_more(pair.primary.url(DATABASE))
    pair.primary.kill()
    pair.standby.start()
    pair.fail_over()
    for node in cluster.nodes:
        _check_undecided(cluster, node)
    return _decide(cluster)


def _wait_for_more(url: str) -> None:
    """Wait until there are new events."""
    with closing(open_journal(url).follow()) as follower:
        before = follower.latest
        wait_until(lambda: follower.latest > before + 20, "nothing is committed any more")


def _decide(cluster: Cluster) -> float:
    """Start all brokers as supervisors would; they end undecided. Then decide as an operator."""
    for _ in range(2):
        cluster.begin()
        for node in cluster.nodes:
            _check_undecided(cluster, node)
    with closing(open_journal(cluster.url()).follow()) as follower:
        head = follower.latest
    accepted = open_journal(cluster.url()).tools().accept_loss()
    assert accepted.end == head, f"the journal continued from {head} to {accepted.end} before the decision"
    return time.monotonic()


def _check_undecided(cluster: Cluster, node: Node) -> None:
    code = node.ended()
    assert code == UNDECIDED, f"a broker ended with {code}, not {UNDECIDED} for the missing decision:\n{cluster.logs()}"


def fill_connections(cluster: Cluster, owner: Node, random: Random) -> float:
    """The database takes no more connections, and those of the brokers break."""
    with ExitStack() as stack:
        try:
            while True:
                url = cluster.pair.primary.url(DATABASE)
                stack.enter_context(psycopg.connect(url, connect_timeout=5))
        except psycopg.OperationalError:
            pass
        for node in cluster.nodes:
            node.route.cut()
        began = time.monotonic()
        time.sleep(cluster.lease * random.uniform(0.3, 2.0))
    return began


def fill_disk(cluster: Cluster, owner: Node, random: Random) -> float:
    """The database has no room for blocks for a while."""
    _change_blocks(cluster, FULL)
    began = time.monotonic()
    time.sleep(cluster.lease * random.uniform(0.5, 2.0))
    _change_blocks(cluster, ROOM)
    return began


def set_role(cluster: Cluster, owner: Node, random: Random) -> float:
    """Give the role settings with which commits would not wait for the standby; then lose the primary."""
    for name, value in SETTINGS.items():
        cluster.pair.primary.execute(f"alter role {ROLE} set {name} = '{value}'")
    cluster.pair.primary.execute(END)
    time.sleep(cluster.lease * random.uniform(1.0, 2.0))
    killed = fail_over(cluster, owner, random)
    cluster.pair.primary.execute(f"alter role {ROLE} reset all")
    return killed


def turn_away(cluster: Cluster, owner: Node, random: Random) -> float:
    """The brokers may not log in, or may not touch their tables, for a while."""
    began = time.monotonic()
    begin, end = random.choice(
        [
            ([f"alter role {ROLE} nologin", END], [f"alter role {ROLE} login"]),
            ([f"alter role {ROLE} password 'other'", END], [f"alter role {ROLE} password '{PASSWORD}'"]),
            (
                [f"revoke all on all tables in schema penstock from {ROLE}"],
                [f"grant all on all tables in schema penstock to {ROLE}"],
            ),
        ]
    )
    for statement in begin:
        cluster.pair.primary.execute(statement, DATABASE)
    time.sleep(_past_lease(cluster, random))
    for statement in end:
        cluster.pair.primary.execute(statement, DATABASE)
    cluster.wait_for_owner()
    return began


def _change_blocks(cluster: Cluster, statement: str) -> None:
    """Alter the table of blocks; retry after a deadlock with a broker's statement."""
    while True:
        with suppress(psycopg.errors.DeadlockDetected):
            cluster.pair.primary.execute(statement, DATABASE)
            return


def slow_link(cluster: Cluster, owner: Node, random: Random) -> float:
    """Limit the link to one megabyte per second, and publish several of small messages. The owner stays."""
    owner.route.throttle(2**20)
    began = time.monotonic()
    with _dial(owner) as peer:
        for _ in range(3 * 64):
            peer.send(publish(COLD, bytes(1024)) * 16)
        _take(peer, COLD, 3 * 1024)
    assert cluster.owner() is owner, "the owner lost its lease over a slow link"
    owner.route.throttle(0)
    return began


def read_between_large(cluster: Cluster, owner: Node, random: Random) -> float:
    """Kill the owner and consume a backlog that lies between settled messages of 4 MB, more than the read cache holds.

    The link is so slow that reading the backlog takes longer than the lease. No other broker takes over.
    """
    count = 10 + random.randrange(4)
    with _dial(owner) as peer:
        for _ in range(count):
            peer.send(publish(LARGE, bytes(4_000_000)) + publish(COLD, b"cold"))
        _take(peer, LARGE, count)
    began = kill_owner(cluster, owner, random)
    new = cluster.wait_for_owner(other_than=owner)
    new.route.throttle(8 * 2**20)
    with _dial(new) as peer:
        _take(peer, COLD, count)
    new.route.throttle(0)
    assert cluster.owner() is new, "the owner lost its lease while reading a backlog"
    return began


def _dial(node: Node) -> Peer:
    peer = Peer(str(node.place("phpmq")))
    peer.socket.settimeout(PATIENCE)
    return peer


def _take(peer: Peer, queue: str, count: int) -> None:
    """Receive this many messages and settle them."""
    peer.send(consume(queue, 1000))
    for _ in range(count):
        peer.send(acknowledge(queue, read_dispatch(peer).id))


FAULTS = (
    Fault("owner killed", kill_owner),
    Fault("owner stopped in order", stop_owner),
    Fault("owner frozen past its lease", freeze_owner),
    Fault("owner frozen for about a lease", freeze_briefly, takes_over=False),
    Fault("database out of reach", cut_both),
    Fault("database does not answer", _swallow("to_client")),
    Fault("database hears nothing", _swallow("to_server")),
    Fault("database silent both ways", _swallow("to_server", "to_client")),
    Fault("connection cut in commits", cut_briefly, takes_over=False),
    Fault("primary killed, standby promoted", fail_over, takes_over=False, promotes=True),
    Fault("database restored", put_back, takes_over=False, forgets=True),
    Fault("standby promoted without commits", lose_commits, takes_over=False, promotes=True, forgets=True),
    Fault("database out of connections", fill_connections, takes_over=False),
    Fault("database out of disk", fill_disk, takes_over=False),
    Fault("slow link", slow_link, takes_over=False),
    Fault("backlog between large messages", read_between_large),
    Fault("role set up badly, primary lost", set_role, takes_over=False, promotes=True),
    Fault("brokers turned away", turn_away, takes_over=False),
)
