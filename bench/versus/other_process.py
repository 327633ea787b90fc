"""NATS with JetStream, and Redis with its append-only file, as servers under test. Both keep messages on the disk."""

import subprocess
import time
from pathlib import Path
from typing import BinaryIO

from bench.broker_process import START_SECONDS_MAX, BrokerFailed, MeasuredProcess
from bench.versus.kafka_process import POLL_SECONDS
from bench.versus.leash import LEASH
from bench.versus.ports import free_ports, is_accepting


class _OtherProcess(MeasuredProcess):
    def __init__(self, program: Path) -> None:
        super().__init__()
        self._program = program
        (self.port,) = free_ports(1)

    def wait_until_up(self) -> None:
        deadline = time.perf_counter() + START_SECONDS_MAX
        while not is_accepting(self.host, self.port):
            if not self.is_running or time.perf_counter() > deadline:
                raise BrokerFailed(f"{self._program.name} did not start\n{self.last_words()}")
            time.sleep(POLL_SECONDS)

    def _launch(self, errors: BinaryIO, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*LEASH, str(self._program), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=self.folder,
            text=True,
        )


class NatsProcess(_OtherProcess):
    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        return self._launch(
            errors,
            "--jetstream",
            f"--addr={self.host}",
            f"--port={self.port}",
            f"--store_dir={self.folder}",
        )


class RedisProcess(_OtherProcess):
    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        # Its defaults, but what was accepted is kept over a restart: synced every second.
        return self._launch(
            errors,
            "--bind",
            self.host,
            "--port",
            str(self.port),
            "--dir",
            str(self.folder),
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        )
