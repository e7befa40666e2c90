"""The servers that are measured, each with a way of using it."""

from __future__ import annotations

from dataclasses import dataclass

from benches.peers.servers import beanstalkd, echo, nats, penstock, rabbitmq, redis
from benches.peers.servers.base import Server


@dataclass(frozen=True)
class Contestant:
    """A way of queueing: the generator's protocol on a server. ``key`` is what ``--only`` takes."""

    key: str
    title: str
    server: Server
    protocol: str
    variant: str = ""


CONTESTANTS = (
    Contestant("phpmq", "Penstock, PHPMQ", penstock.COMMIT, "phpmq"),
    Contestant("kokaq", "Penstock, Kokaq", penstock.COMMIT, "kokaq"),
    Contestant("kokaq-pop", "Penstock, Kokaq Pop", penstock.COMMIT, "kokaq-pop"),
    Contestant("sspq", "Penstock, SSPQ", penstock.COMMIT, "sspq"),
    Contestant("redis-list", "Redis lists", redis.ALWAYS, "redis-list"),
    Contestant("redis-stream", "Redis Streams", redis.ALWAYS, "redis-stream"),
    Contestant("rabbitmq-quorum", "RabbitMQ quorum", rabbitmq.RABBITMQ, "amqp", "quorum"),
    Contestant("rabbitmq-classic", "RabbitMQ classic", rabbitmq.RABBITMQ, "amqp", "classic"),
    Contestant("nats-newest", "NATS newest", nats.NEWEST, "nats"),
    Contestant("nats-debian", "NATS Debian", nats.DEBIAN, "nats"),
    Contestant("beanstalkd", "beanstalkd", beanstalkd.BEANSTALKD, "beanstalkd"),
    Contestant("phpmq-os", "Penstock os, PHPMQ", penstock.SYSTEM, "phpmq"),
    Contestant("kokaq-os", "Penstock os, Kokaq", penstock.SYSTEM, "kokaq"),
    Contestant("redis-list-everysec", "Redis lists, everysec", redis.EVERYSEC, "redis-list"),
    Contestant("redis-stream-everysec", "Redis Streams, everysec", redis.EVERYSEC, "redis-stream"),
    Contestant("echo", "bare uvloop echo", echo.ECHO, "echo"),
    Contestant("echo-half", "the same, consumers alone", echo.ECHO, "echo"),
)
BY_KEY = {each.key: each for each in CONTESTANTS}
