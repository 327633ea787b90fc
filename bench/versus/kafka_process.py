"""Apache Kafka as a broker under test: one KRaft node, broker and controller, with default settings."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from bench.broker_process import START_SECONDS_MAX, BrokerFailed, MeasuredProcess
from bench.versus.java import BROKER_OPTIONS, java_command
from bench.versus.kafka_jars import KafkaJars
from bench.versus.ports import free_ports, is_accepting

CLUSTER_ID = "UmVzcG9vbEJlbmNoMDAwMQ"
POLL_SECONDS = 0.005


class KafkaProcess(MeasuredProcess):
    # A JVM that SIGTERM ended says so.
    stop_codes = (0, 143)

    def __init__(
        self,
        jars: KafkaJars,
        *,
        settings: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        """`settings` are beside those that it needs, or instead of them."""
        super().__init__()
        self._jars = jars
        self._settings = settings or {}
        self._format_options = format_options
        self._is_formatted = False

    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            java_command(
                self._jars, "kafka.Kafka", str(self._settings_path), options=BROKER_OPTIONS
            ),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )

    def start(self) -> float:
        if not self._is_formatted:
            self._format()
        return super().start()

    def wait_until_up(self) -> None:
        deadline = time.perf_counter() + START_SECONDS_MAX
        while time.perf_counter() < deadline:
            if not self.is_running:
                raise BrokerFailed(f"Kafka did not start\n{self.last_words()}")
            if is_accepting(self.host, self.port):
                return
            time.sleep(POLL_SECONDS)
        raise BrokerFailed(f"Kafka accepts nobody after {START_SECONDS_MAX:.0f} s")

    @property
    def _settings_path(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        port, controller_port = free_ports(2)
        # Settings of the caller's own may name a port, and then it has said so.
        self.port = self.port or port
        self._settings_path.write_text(
            settings_text(
                folder=self.logs_folder,
                port=self.port,
                quorum_port=controller_port,
                more=self._settings,
            )
        )
        done = subprocess.run(
            java_command(
                self._jars,
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={CLUSTER_ID}",
                f"--config={self._settings_path}",
                "--standalone",
                *self._format_options,
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerFailed(f"Kafka's storage tool: {(done.stdout + done.stderr).strip()}")
        self._is_formatted = True

    @property
    def logs_folder(self) -> Path:
        return self.folder / "logs"


def settings_text(
    *, folder: Path, port: int, quorum_port: int, more: Mapping[str, str] | None = None
) -> str:
    """Settings of one node with both roles; everything else has its default.

    One setting is not, in both brokers: groups form at once, not after three seconds. No figure contains that wait.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{quorum_port}",
        "log.dirs": str(folder),
        # There is one broker.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    settings |= more or {}
    return "".join(f"{name}={value}\n" for name, value in settings.items())
