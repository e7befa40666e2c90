"""RabbitMQ, as one node without plugins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server, ready_or_stopped, said
from penstock.demo.processes import free_port

#: The one on Debian's PATH changes the user; this is what it calls then, and takes its folders from the environment.
PROGRAMS = (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),)
HOST = "localhost"


@dataclass(frozen=True)
class RabbitMQ(Server):
    """A node with default settings; a queue's kind is chosen when it is declared."""

    def missing(self) -> str | None:
        return None if _program() else "apt-get install -y rabbitmq-server"

    def version(self) -> str:
        return said("dpkg-query", "--show", "--showformat=${Version}", "rabbitmq-server")

    def start(self, folder: Path) -> Running:
        port, names, distribution = free_port(), free_port(), free_port()
        environment = _environment(folder, port, names, distribution)
        # Start Erlang's name server here, so that it stops with us; else it would stay.
        helper = Process("epmd", ["epmd", "-port", str(names), "-address", "127.0.0.1"], folder, environment)
        ready_or_stopped(helper, names)
        process = Process(self.title, [str(_program())], folder, environment).with_helper(helper)
        ready_or_stopped(process, port)
        return Running(process, {"amqp": port})


def _program() -> Path | None:
    return next((each for each in PROGRAMS if os.access(each, os.X_OK)), None)


def _environment(folder: Path, port: int, names: int, distribution: int) -> dict[str, str]:
    (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (folder / "enabled_plugins").write_text("[].\n")
    (folder / "rabbitmq-env.conf").touch()
    return {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"bench{port}@{HOST}",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
    }


RABBITMQ = RabbitMQ("rabbitmq", "RabbitMQ", "on disk (fsync) before it is confirmed, in quorum and in classic queues")
