"""beanstalkd, with its binary log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benches.peers.processes import Process
from benches.peers.servers.base import Running, Server, not_on_path, ready_or_stopped, said
from penstock.demo.processes import free_port


@dataclass(frozen=True)
class Beanstalkd(Server):
    """A beanstalkd that syncs after every write."""

    def missing(self) -> str | None:
        return not_on_path("beanstalkd", "apt-get install -y beanstalkd")

    def version(self) -> str:
        return said("beanstalkd", "-v").removeprefix("beanstalkd ")

    def start(self, folder: Path) -> Running:
        port = free_port()
        log = folder / "binlog"
        log.mkdir(exist_ok=True)
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(log), "-f", "0"]
        process = Process(self.title, command, folder)
        ready_or_stopped(process, port)
        return Running(process, {"beanstalkd": port})


BEANSTALKD = Beanstalkd("beanstalkd", "beanstalkd", "on disk (fsync) before it is confirmed: -f 0")
